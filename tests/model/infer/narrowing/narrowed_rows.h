// Rows of logits that a compiled step narrows, samplers with any options, and filters, for tests.
#pragma once

#include <cmath>
#include <limits>
#include <random>

#include "graph/elaborate/elaborate.h"
#include "lang/parser.h"
#include "model/infer/narrowing/further_rows.h"
#include "model/infer/sample/sampler.h"
#include "run/engine/engine.h"
#include "tests/model/tiny.h"

namespace lumen::model::infer {

inline constexpr int64_t kNarrowedRows = 3;

// A step's last part alone.
class NarrowingProgram {
 public:
  explicit NarrowingProgram(int64_t vocabulary, Narrowing::Rows rows) : narrowing(vocabulary, rows) {
    const std::string step =
        fmt::format("fn step(logits: f32[R, {0}]) -> f32[R, {0}] {{\n  return logits\n}}\n", vocabulary);
    const lang::Function fn = lang::parse_file(std::make_shared<Source>(Source{"<test>", step})).functions.at(0);
    graph::Graph g = graph::elaborate_function(library_->scope(), fn);
    narrowing.append(*library_, g);
    run::CompileOptions options;
    options.symbols = {{"R", kNarrowedRows}};
    program_ = engine().compile(g, options);
    for (const std::string& name : program_->input_names()) {
      in_[name] = std::make_shared<run::DeviceTensor>(engine().device(), program_->input_type(name));
      program_->bind(name, in_[name]);
    }
  }

  std::vector<std::optional<Narrowed>> run(const std::vector<std::vector<float>>& rows,
                                           const std::vector<Asked>& asked) {
    std::vector<float> all, scales(kNarrowedRows);
    std::vector<int32_t> ids(kNarrowedRows * narrowing.asked());
    for (int64_t r = 0; r < kNarrowedRows; ++r) {
      all.insert(all.end(), rows[r].begin(), rows[r].end());
      narrowing.ask(asked[r], std::span(ids).subspan(r * narrowing.asked(), narrowing.asked()), &scales[r]);
    }
    in_.at("logits")->upload(all.data(), in_.at("logits")->bytes());
    in_.at(Narrowing::kAsked)->upload(ids.data(), in_.at(Narrowing::kAsked)->bytes());
    in_.at(Narrowing::kScales)->upload(scales.data(), in_.at(Narrowing::kScales)->bytes());
    program_->run();
    std::vector<float> out(kNarrowedRows * narrowing.width());
    program_->result(Narrowing::kNarrowed)->download(out.data(), std::ssize(out) * int64_t{sizeof(float)});
    std::vector<std::optional<Narrowed>> read;
    for (int64_t r = 0; r < kNarrowedRows; ++r)
      read.push_back(
          narrowing.read(std::span<const float>(out).subspan(r * narrowing.width(), narrowing.width()), asked[r]));
    return read;
  }

  // The rows of the last run, looked at again.
  const run::DeviceTensorRef& logits() { return in_.at("logits"); }
  FurtherRows& further() {
    if (!further_) further_.emplace(engine(), *library_, narrowing);
    return *further_;
  }

  const Narrowing narrowing;

 private:
  std::shared_ptr<const arch::Library> library_ = arch::Library::builtin();
  std::optional<FurtherRows> further_;
  std::shared_ptr<run::Program> program_;
  std::map<std::string, run::DeviceTensorRef> in_;
};

// Sharp and flat ones, of many equal logits or hardly any, some in order.
inline std::vector<float> logits_of(std::mt19937& random, int64_t vocabulary) {
  std::normal_distribution<float> normal(0, random() % 2 == 0 ? 3 : 0.7F);
  const float step = random() % 2 == 0 ? 1000 : 1;
  std::vector<float> out;
  for (int64_t i = 0; i < vocabulary; ++i) out.push_back(std::round(normal(random) * step) / step);
  const auto kind = random() % 8;
  if (kind == 0) std::sort(out.begin(), out.end());
  if (kind == 1) std::fill(out.begin(), out.end(), -2.5F);
  if (kind > 4) out[random() % out.size()] += 12;
  return out;
}

inline SamplerOptions drawn_options(std::mt19937& random, int64_t vocabulary) {
  SamplerOptions o;
  const auto one_in = [&](uint32_t n) { return random() % n == 0; };
  o.seed = random();
  if (one_in(4)) o.temperature = 0;
  if (one_in(4)) o.temperature = 0.3;
  if (one_in(4)) o.temperature = 1.5;
  if (one_in(3)) o.top_k = one_in(2) ? 0 : int64_t(1 + random() % 120);
  if (one_in(3)) o.top_p = one_in(2) ? 1 : 0.5;
  if (one_in(3)) o.min_p = one_in(2) ? 0 : 0.2;
  if (one_in(8)) o.typical_p = 0.8;
  if (one_in(3)) o.repeat_penalty = one_in(2) ? 1.3 : 0.8;
  if (one_in(4)) o.presence_penalty = 0.7;
  if (one_in(4)) o.frequency_penalty = -0.4;
  if (one_in(5)) o.dry_multiplier = 0.8;
  if (one_in(8)) o.top_n_sigma = 2;
  if (one_in(6)) o.xtc_probability = 0.5;
  if (one_in(8)) o.mirostat = 1 + int(random() % 2);
  for (uint32_t i = 0; one_in(3) && i < 6; ++i)
    o.bias.emplace_back(text::TokenId(random() % (vocabulary + 2)),
                        one_in(3) ? -std::numeric_limits<double>::infinity() : double(random() % 9) - 3);
  if (one_in(2))
    for (int64_t i = 0; i < vocabulary; ++i)
      if (one_in(20)) o.forbidden.push_back(text::TokenId(i));
  return o;
}

class EveryFew : public TokenFilter {
 public:
  EveryFew(size_t vocabulary, uint32_t few) : all_(vocabulary) {
    for (size_t i = 0; i < vocabulary; ++i)
      if ((i * 7919) % few == 0) all_.add(i);
  }
  bool allows(text::TokenId id) override { return all_.has(id); }
  const TokenSet& all() override { return all_; }

 private:
  TokenSet all_;
};

}  // namespace lumen::model::infer
