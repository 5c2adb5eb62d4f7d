#include "model/train/ranks/replicated_parameters.h"

#include <algorithm>
#include <utility>

#include "base/round_up.h"
#include "graph/ir/text.h"
#include "model/recipe/optimizer/optimizer.h"
#include "model/train/ranks/rank_graphs.h"

namespace lumen::model::train {
namespace {

constexpr int64_t kLine = 64;  // a cache line, the alignment of each rank's rows

graph::Type gradient_type(const Cut& cut) {
  return {cut.whole.shape, {Scalar::f32, nullptr}};
}

int64_t row_bytes(const Cut& cut) {
  return cut.columns * int64_t{sizeof(float)};
}

// Bytes of one rank's rows in a receive buffer.
int64_t sent_room(const Cut& cut, int rank) {
  return round_up(cut.rows_of(rank) * row_bytes(cut), kLine);
}

std::string place_name(size_t member) {
  return fmt::format("p{}", member);
}

// Lists each member only in the last part that adds to its gradient.
ExchangedParameters ending(ExchangedParameters exchanged) {
  for (size_t part = exchanged.parts.size(); part-- > 0;)
    std::erase_if(exchanged.parts[part],
                  [&](const ExchangedParameters::Member& m) { return !ends_with(exchanged, part, m); });
  return exchanged;
}

}  // namespace

int64_t summed_scratch(const ExchangedParameters& exchanged, int rank, int ranks) {
  int64_t most = 0;
  for (const std::vector<ExchangedParameters::Member>& part : ending(exchanged).parts) {
    int64_t bytes = 0;
    for (const ExchangedParameters::Member& m : part) bytes += (ranks - 1) * sent_room(*m.cut, rank);
    most = std::max(most, bytes);
  }
  return most;
}

ReplicatedParameters::ReplicatedParameters(run::Engine& engine, run::Communicator& ranks, ExchangedParameters exchanged,
                                           Tensors tensors, std::shared_ptr<ParameterStore> inner, bool shares)
    : engine_(engine),
      ranks_(ranks),
      exchanged_(ending(std::move(exchanged))),
      tensors_(std::move(tensors)),
      inner_(std::move(inner)),
      shares_(shares),
      scratch_bytes_(summed_scratch(exchanged_, ranks_.rank(), ranks_.size())) {
  if (scratch_bytes_ > 0) scratch_ = engine_.allocate(scratch_bytes_);
  programs_.resize(exchanged_.parts.size());
  for (size_t k = 0; k < programs_.size(); ++k) compile_part(k);
}

std::shared_ptr<run::Program> ReplicatedParameters::compile(const graph::Graph& g) {
  std::shared_ptr<run::Program>& program = by_text_[graph::print(g)];
  if (!program) program = engine_.compile(g, {});
  return program;
}

// Members are named by position, so that equal parts have graphs of the same text.
void ReplicatedParameters::compile_part(size_t part) {
  std::vector<Cut> named;
  for (const Member& m : exchanged_.parts[part]) {
    named.push_back(*m.cut);
    named.back().whole.name = place_name(named.size() - 1);
  }
  const int own = ranks_.rank();
  std::vector<const Cut*> mine;
  for (const Cut& c : named)
    if (c.rows_of(own) > 0) mine.push_back(&c);
  if (!mine.empty()) programs_[part].sum = compile(sum_graph(mine, own, ranks_.size(), false, nullptr));
  if (!shares_) {
    if (!mine.empty()) programs_[part].squares = compile(squares_graph(mine, own));
    return;
  }
  std::vector<Cut> whole = named;
  std::vector<const Cut*> all;
  for (Cut& c : whole) {
    c.first = {0, c.rows};
    all.push_back(&c);
  }
  if (!all.empty()) programs_[part].squares = compile(squares_graph(all, 0));
}

run::DeviceTensorRef ReplicatedParameters::rows_of(const run::DeviceTensorRef& whole, const Cut& cut) const {
  auto* const at = reinterpret_cast<std::byte*>(whole->data()) + cut.first[ranks_.rank()] * row_bytes(cut);
  return std::make_shared<run::DeviceTensor>(engine_.device(), cut.part_of(whole->type(), ranks_.rank()), whole, at);
}

void ReplicatedParameters::close_gradients(size_t part) {
  if (is_last_ && !exchanged_.parts[part].empty()) {
    sum(part);
    take_squares(part);
  }
  inner_->close_gradients(part);
}

// Sends each rank's rows to that rank, and their sums to all.
void ReplicatedParameters::sum(size_t part) {
  const int own = ranks_.rank(), size = ranks_.size();
  const std::vector<Member>& members = exchanged_.parts[part];
  run::SentPieces to(size), sums(size);
  run::TakenPieces from(size), taken(size);
  int64_t arrived = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    const Cut& cut = *members[i].cut;
    const run::DeviceTensorRef gradient = tensors_(recipe::kGradient + cut.whole.name, gradient_type(cut));
    auto* const data = reinterpret_cast<std::byte*>(gradient->data());
    const auto place = [&](int r) { return data + cut.first[r] * row_bytes(cut); };
    const auto bytes = [&](int r) { return cut.rows_of(r) * row_bytes(cut); };
    for (int r = 0; r < size; ++r) {
      if (r == own) continue;
      if (bytes(r) > 0) {
        to[r].push_back({place(r), bytes(r)});
        taken[r].push_back({place(r), bytes(r)});
      }
      if (bytes(own) == 0) continue;
      sums[r].push_back({place(own), bytes(own)});
      std::byte* const target = scratch_.get() + arrived;
      from[r].push_back({target, bytes(own)});
      arrived += sent_room(cut, own);
      programs_[part].sum->bind(
          part_input(r, place_name(i)),
          std::make_shared<run::DeviceTensor>(engine_.device(), cut.part_of(gradient->type(), own), scratch_, target));
    }
    if (bytes(own) > 0) programs_[part].sum->bind(recipe::kGradient + place_name(i), rows_of(gradient, cut));
  }
  ranks_.exchange(to, from);
  if (programs_[part].sum) programs_[part].sum->run();
  if (shares_) ranks_.exchange(sums, taken);
}

void ReplicatedParameters::take_squares(size_t part) {
  if (!programs_[part].squares) return;
  run::Program& squares = *programs_[part].squares;
  const std::vector<Member>& members = exchanged_.parts[part];
  const auto has = [&](const Member& m) { return shares_ || m.cut->rows_of(ranks_.rank()) > 0; };
  for (size_t i = 0; i < members.size(); ++i) {
    const Cut& cut = *members[i].cut;
    if (!has(members[i])) continue;
    const run::DeviceTensorRef gradient = tensors_(recipe::kGradient + cut.whole.name, gradient_type(cut));
    squares.bind(recipe::kGradient + place_name(i), shares_ ? gradient : rows_of(gradient, cut));
  }
  squares.run();
  for (size_t i = 0; i < members.size(); ++i)
    if (has(members[i]))
      squares.result(recipe::kSquares + place_name(i))->download(&squares_[members[i].cut->whole.name], sizeof(float));
}

}  // namespace lumen::model::train
