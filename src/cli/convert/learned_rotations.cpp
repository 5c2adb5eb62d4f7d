#include "cli/convert/learned_rotations.h"

#include "base/error.h"
#include "base/log.h"
#include "cli/names.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/compress/quantize.h"
#include "model/compress/rotate/rotate.h"

namespace lumen::cli {
namespace {

constexpr const char *kError = "error", *kTokens = "tokens", *kOwn = "kl";

struct Usual {
  int steps = 0;
  double rate = 0;
};
const char* told(const std::string& loss) {
  return loss == kError ? "relative squared error of rounding" : loss == kOwn ? "KL divergence" : "loss of tokens";
}
Usual usual(const std::string& loss) {
  return loss == kError ? Usual{100, 1} : Usual{100, 0.3};
}

}  // namespace

void LearnedRotationFlags::add_learning_flags(CLI::App& sub) {
  add_settings(sub, "--learn-rotation", format, "--activations", activations, "--loss", loss, "--steps", steps,
               "--rate", rate, "--step-windows", step_windows);
  run.length = 256;
  add_flags(sub);
}

std::vector<std::vector<model::compress::Rotation>> learned_rotations(
    run::Engine& engine, const model::arch::Model& model, const std::vector<graph::RotationSite>& sites,
    const std::vector<std::vector<model::compress::Rotation>>& start, LearnedRotationFlags& flags, uint32_t seed) {
  model::compress::QuantizeOptions what;
  what.target = flags.format;
  const std::map<std::string, FormatRef> formats = model::compress::choose_formats(model, what, nullptr);
  model::compress::RotatedWeights weights(engine, model, sites);
  for (size_t s = 0; s < weights.spaces().size(); ++s)
    weights.set(s, start[weights.spaces()[s].site][weights.spaces()[s].block].matrix());
  const std::vector<model::text::TokenId> text = flags.read(model);
  std::unique_ptr<model::compress::RotationObjective> objective;
  if (flags.loss == kError) {
    model::calibrate::LayerRun run(engine, model, text, flags.run);
    objective = std::make_unique<model::compress::RoundingError>(engine, weights, formats, &run);
  } else {
    model::compress::TokenLossOptions o;
    o.run = flags.run;
    o.own = flags.loss == kOwn;
    if (!flags.activations.empty()) o.activations = named_format(model.family->library().formats(), flags.activations);
    o.step_windows = flags.step_windows;
    o.seed = seed;
    objective = std::make_unique<model::compress::TokenLoss>(engine, weights, formats, text, o);
  }
  model::compress::LearnRotationOptions o;
  o.steps = flags.steps > 0 ? flags.steps : usual(flags.loss).steps;
  o.rate = flags.rate > 0 ? flags.rate : usual(flags.loss).rate;
  catch_interrupts();
  Progress progress;
  const model::compress::LearnedRotations learned = model::compress::learn_rotations(
      weights, *objective, o,
      [&](const model::compress::RotationProgress& p) {
        progress.update(fmt::format("learn rotations {}/{} | {} {:.5g}", p.step, p.steps, flags.loss, p.cost));
      },
      [] { return interrupted().load(); });
  progress.finish("");
  if (interrupted()) throw Error(Exit::interrupted, "stopped while rotations were learned; nothing was written");
  const std::string read = flags.activations.empty() ? "" : fmt::format(" with activations in {}", flags.activations);
  put(fmt::format("rotations for {}{}: {} {:.6g} before, {:.6g} after {} steps\n", flags.format, read, told(flags.loss),
                  learned.before, learned.after, learned.step));
  std::vector<std::vector<model::compress::Rotation>> out(sites.size());
  for (size_t s = 0; s < weights.spaces().size(); ++s) {
    const model::compress::RotatedSpace& space = weights.spaces()[s];
    out[space.site].push_back(model::compress::Rotation::given(space.width, learned.rotations[s]));
  }
  return out;
}

}  // namespace lumen::cli
