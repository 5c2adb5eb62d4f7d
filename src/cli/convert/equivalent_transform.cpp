// lumen rewrite IN OUT
#include "model/compress/equivalent_transform/equivalent_transform.h"

#include <cmath>
#include <regex>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/convert/learned_rotations.h"
#include "cli/given_text.h"
#include "cli/names.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/compress/quantize.h"
#include "model/infer/measure/compare_models.h"
#include "run/device/require.h"

namespace lumen::cli {
namespace {

constexpr double kMostDivergence = 1e-4;  // nats per token; the effect of rounding to f32 is far below

struct TransformFlags {
  std::string in, out, type, kind = "hadamard", online, outliers;
  std::vector<std::string> rotate;
  bool fold = false, untie = false, no_check = false, overwrite = false;
  uint32_t seed = 1;
  int64_t windows = 4;
  LearnedRotationFlags learning;
};

bool asks(const TransformFlags& flags, const std::string& what) {
  return std::ranges::find(flags.rotate, what) != flags.rotate.end();
}

std::vector<model::compress::Rotation> rotations(const TransformFlags& flags, const graph::RotationSite& site) {
  std::vector<model::compress::Rotation> out;
  for (int64_t b = 0; b < site.blocks; ++b)
    out.push_back(flags.kind == "random" ? model::compress::Rotation::random(site.width, flags.seed + b)
                                         : model::compress::Rotation::hadamard(site.width, flags.seed + b));
  return out;
}

class EquivalentTransform {
 public:
  EquivalentTransform(TransformFlags& flags, model::arch::Model& m, run::Engine& engine)
      : flags_(flags), model_(m), engine_(engine) {}

  void run() {
    const bool stream = asks(flags_, "stream");
    if (flags_.untie || stream)
      say(model::compress::untie(model_) ? "the output matrix has its own copy of the embedding now" : "");
    const graph::Graph g = model::compress::transform_graph(model_);
    const std::vector<graph::ScaleSite> sites = graph::scale_sites(g);
    if (!flags_.outliers.empty()) inject(sites);
    if (flags_.fold || stream)
      say(fmt::format("{} norms folded into the weights after them",
                      model::compress::fold_norms(model_, sites).size()));
    const std::vector<std::string> online = online_weights();
    rotate(g, online);
    if (!online.empty()) {
      model::compress::rotate_online(model_, online);
      say(fmt::format("the inputs of {} weights are rotated while the model runs; other programs do not support that",
                      online.size()));
    }
    if (!changed_) throw usage_error("nothing to do: add --rotate, --online, --fold-norms, --untie or --outliers");
  }

 private:
  void say(const std::string& what) {
    changed_ = true;
    if (!what.empty()) note(what);
  }

  void rotate(const graph::Graph& g, const std::vector<std::string>& online) {
    std::vector<graph::RotationSite> sites;
    if (asks(flags_, "stream")) sites.push_back(graph::stream_rotation(g));
    if (!sites.empty() && !sites[0].reason.empty())
      throw user_error("the residual stream cannot be rotated: {}", sites[0].reason);
    const size_t streams = sites.size();
    if (asks(flags_, "values")) add_values(g, sites);
    std::vector<std::vector<model::compress::Rotation>> by_site;
    for (const graph::RotationSite& site : sites) by_site.push_back(rotations(flags_, site));
    if (!flags_.learning.format.empty()) by_site = learned(sites, by_site, online);
    for (size_t s = 0; s < sites.size(); ++s) model::compress::rotate(model_, sites[s], by_site[s]);
    if (streams > 0) say(fmt::format("the residual stream is rotated: {} parameters", sites[0].changes.size()));
    if (sites.size() > streams) say(fmt::format("values are rotated in {} attentions", sites.size() - streams));
  }

  static void add_values(const graph::Graph& g, std::vector<graph::RotationSite>& sites) {
    const size_t before = sites.size();
    std::string reason = "there is no attention";
    for (graph::RotationSite& site : graph::value_rotations(g)) {
      if (site.reason.empty())
        sites.push_back(std::move(site));
      else
        reason = site.reason;
    }
    if (sites.size() == before) throw user_error("values cannot be rotated: {}", reason);
  }

  // The loss includes the online rotations, which must be in other spaces than the learned ones.
  std::vector<std::vector<model::compress::Rotation>> learned(
      const std::vector<graph::RotationSite>& sites, const std::vector<std::vector<model::compress::Rotation>>& start,
      const std::vector<std::string>& online) {
    if (sites.empty()) throw usage_error("--learn-rotation learns the rotations of --rotate: stream, values");
    for (const graph::RotationSite& site : sites)
      for (const graph::RotatedParameter& change : site.changes)
        if (change.along == graph::Along::columns && std::ranges::find(online, change.parameter) != online.end())
          throw usage_error("--online: the input of '{}' is rotated by a learned rotation", change.parameter);
    model::arch::Model seen = model_;
    if (!online.empty()) model::compress::rotate_online(seen, online);
    return learned_rotations(engine_, seen, sites, start, flags_.learning, flags_.seed);
  }

  std::vector<std::string> online_weights() const {
    std::vector<std::string> names;
    if (flags_.online.empty()) return names;
    try {
      const std::regex pattern(flags_.online);
      for (const model::arch::Parameter& p : model_.parameters)
        if (p.shape.size() >= 2 && (std::regex_search(p.gguf, pattern) || std::regex_search(p.name, pattern)))
          names.push_back(p.name);
    } catch (const std::regex_error&) {
      throw usage_error("--online '{}' is no regular expression", flags_.online);
    }
    if (names.empty()) throw usage_error("--online: no matrix matches '{}'", flags_.online);
    return names;
  }

  // "4:30": scales four channels of every site by 30.
  void inject(const std::vector<graph::ScaleSite>& sites) {
    int channels = 0;
    double factor = 0;
    char end = 0;
    if (std::sscanf(flags_.outliers.c_str(), "%d:%lf%c", &channels, &factor, &end) != 2 || channels < 1 ||
        !(factor >= 1e-3 && factor <= 1e6))
      throw usage_error("--outliers takes CHANNELS:FACTOR, as 4:30, not '{}'", flags_.outliers);
    int done = 0;
    for (const graph::ScaleSite& site : sites) {
      if (site.free < channels) continue;
      std::vector<int64_t> which;
      for (int64_t k = 0; k < channels; ++k) which.push_back((k * 7919 + flags_.seed * 104729) % site.free);
      std::ranges::sort(which);
      which.erase(std::ranges::unique(which).begin(), which.end());
      model::compress::inject_outliers(model_, site, which, factor);
      ++done;
    }
    if (done == 0) throw user_error("no activation of the model takes outliers");
    say(fmt::format("{} channels of {} activations are made {:g} times larger", channels, done, factor));
  }

  TransformFlags& flags_;
  model::arch::Model& model_;
  run::Engine& engine_;
  bool changed_ = false;
};

// Compares the model before and after on a text. They must be equal up to rounding errors, else Error (exit 5).
void check(run::Engine& engine, const TransformFlags& flags, const model::arch::Model& before,
           const model::arch::Model& after) {
  if (!before.tokenizer) return note("not checked: the model has no tokenizer");
  const std::string text = held_out_texts(flags.learning.texts);
  model::infer::PerplexityOptions options;
  options.exact = true;
  options.windows = flags.windows;
  options.length = std::min<int64_t>(flags.learning.run.length, before.integer("context"));
  options.bos = before.tokenizer->adds_bos();
  const std::vector<model::text::TokenId> tokens =
      model::infer::perplexity_tokens(*before.tokenizer, text, model::infer::BosPlace::front);
  const model::infer::LoadedModel base(engine, before), other(engine, after);
  const model::infer::LoadedModel* const others[] = {&other};
  Progress progress;
  const model::infer::ComparedModels compared =
      model::infer::compare_models(base, others, tokens, options, [&](int64_t done, int64_t all) {
        progress.update(fmt::format("check window {}/{}", done, all));
        return true;
      });
  const model::infer::Divergence& d = compared.others[0].divergence;
  progress.finish(fmt::format("check: {} tokens", d.tokens));
  put(
      fmt::format("KL divergence from the model before {:.3g} nats per token over {} tokens (most {:.3g}); same "
                  "likeliest token {:.3f} %\n",
                  d.mean, d.tokens, d.most, 100 * d.same_top));
  if (!(d.mean <= kMostDivergence))
    throw Error(
        Exit::verify,
        fmt::format("the transformed model computes something else: {:.3g} nats per token away. Nothing was written",
                    d.mean),
        "this is a bug in Lumen or a model whose numbers are at the end of f32's range; please report it");
}

int transform(const Shared& shared, TransformFlags& flags) {
  for (const std::string& what : flags.rotate)
    if (what != "stream" && what != "values") throw usage_error("--rotate takes stream and values, not '{}'", what);
  const model::arch::LibraryRef library = shared.library();
  const std::string& learned = flags.learning.format;
  if (!learned.empty() && !library->recipe(learned)) (void)named_format(library->formats(), learned);
  if (const std::string& read = flags.learning.activations; !read.empty()) {
    (void)named_format(library->formats(), read);
    if (learned.empty() || flags.learning.loss == "error")
      throw usage_error(
          "--activations is for --learn-rotation by kl or tokens: errors of weights involve no activations");
  }
  const FormatRef type = flags.type.empty() ? nullptr : named_format(library->formats(), flags.type);
  require_writable(flags.out);
  const model::arch::Model given = model::arch::read_model(library, flags.in);
  run::require_host_memory("the transformation", {{"weights in f32, before and after", given.weight_count() * 8}});
  run::Engine engine = shared.engine();
  const model::arch::Model before = model::compress::dequantize(engine, given);
  model::arch::Model after = before;
  EquivalentTransform(flags, after, engine).run();
  if (!flags.no_check) check(engine, flags, before, after);
  if (type) after = model::compress::with_floats(engine, after, type);
  model::arch::write_gguf(after, flags.out);
  note(fmt::format("wrote {}", flags.out));
  return 0;
}

}  // namespace

void add_equivalent_transform(CLI::App& app, Command& command) {
  auto flags = std::make_shared<TransformFlags>();
  CLI::App* sub = app.add_subcommand(
      "rewrite", "Equivalent transformation: change weights but not outputs, so that quantization loses less");
  add_settings(*sub, "input", flags->in, "output", flags->out, "--rotate", flags->rotate, "--rotation", flags->kind,
               "--online", flags->online, "--fold-norms", flags->fold, "--untie", flags->untie, "--outliers",
               flags->outliers, "--seed", flags->seed, "--outtype", flags->type, "--check-chunks", flags->windows,
               "--no-check", flags->no_check, "--overwrite", flags->overwrite);
  flags->learning.add_learning_flags(*sub);
  sub->footer([] {
    return fmt::format(
        "Examples:\n"
        "  lumen rewrite model.gguf rotated.gguf --rotate stream,values\n"
        "  lumen rewrite model.gguf rotated.gguf --rotate stream,values --learn-rotation {} -f text.txt\n"
        "  lumen rewrite model.gguf rotated.gguf --rotate stream --online ffn_down --outtype bf16",
        example_format(4.5));
  });
  set_action(*sub, command, flags, transform);
}

}  // namespace lumen::cli
