#include "run/engine/compile/tuned.h"

namespace lumen::run {

namespace {

// Whether two plans of a kernel are interchangeable in a launch list: only the last step differs.
bool interchangeable(const Synthesized& a, const Synthesized& b) {
  if (a.steps.size() != b.steps.size() || a.scratch != b.scratch) return false;
  for (size_t i = 0; i < a.steps.size(); ++i) {
    if (a.steps[i].arguments != b.steps[i].arguments) return false;
    if (i + 1 < a.steps.size() && a.texts[i] != b.texts[i]) return false;
  }
  return true;
}

std::string plan_key(const CompileContext& context, const DistinctKernels& kernels, size_t i,
                     const CompileOptions& options) {
  return context.tuner->key_of(fmt::format("{}{}{}", options.exact ? "exact " : "",
                                           options.invariant ? "invariant " : "", kernels.forms[i].meaning));
}

}  // namespace

std::vector<bool> use_remembered_plans(const CompileContext& context, const graph::Plan& plan,
                                       const CompileOptions& options, DistinctKernels* kernels) {
  std::vector<bool> settled(kernels->distinct.size(), true);
  for (size_t i = 0; i < settled.size() && context.tuner; ++i) {
    Synthesized& s = kernels->distinct[i];
    if (s.candidates < 2 || options.candidate != 0) continue;
    const std::optional<ChosenPlan> chosen = context.tuner->remembered(plan_key(context, *kernels, i, options));
    settled[i] = chosen.has_value();
    if (!chosen || chosen->number == 0) continue;
    settled[i] = false;
    if (chosen->number >= s.candidates) continue;
    Synthesized tuned =
        synthesize_form(plan, plan.groups[kernels->first[i]], kernels->forms[i], context.device->machine(),
                        {options.exact, chosen->number, options.products.scalar, options.invariant});
    if (tuned.hash != chosen->hash || !interchangeable(s, tuned)) continue;  // from another version
    tuned.steps.back().plan += ", tuned";
    s = std::move(tuned);
    settled[i] = true;
  }
  return settled;
}

std::shared_ptr<Autotuner> make_trial(const CompileContext& context,
                                      const std::shared_ptr<const graph::Pipeline>& pipeline,
                                      const DistinctKernels& kernels, size_t i, const std::vector<StepCode>& code,
                                      const CompileOptions& options) {
  const Synthesized& s = kernels.distinct[i];
  if (s.candidates < 2) return nullptr;
  const std::string key = plan_key(context, kernels, i, options);
  const synth::Step& last = s.steps.back();
  const int instances = kernels.instances[i];
  const std::weak_ptr<Tuner> tuner = context.tuner;
  const auto place = std::make_shared<std::weak_ptr<Autotuner>>();
  auto job = [place, pipeline, key, exact = options.exact, products = options.products.scalar,
              invariant = options.invariant, first = s, cache = context.cache, device = context.device,
              number = kernels.first[i], form = kernels.forms[i], instances] {
    const graph::Group& group = pipeline->plan.groups[number];
    std::vector<Autotuner::Plan> others;
    for (int candidate = 1; candidate < first.candidates; ++candidate) {
      if (place->expired()) return;
      const Synthesized other =
          synthesize_form(pipeline->plan, group, form, device->machine(), {exact, candidate, products, invariant});
      if (!interchangeable(first, other)) continue;
      const loop::Kernel changed = with_instances(other.steps.back().kernel, instances);
      const loop::Kernel* kernel = &changed;
      CompileReport report;
      others.push_back({cache->get({&kernel, 1}, 1, &report)[0],
                        launch_config_of(changed, device->machine(), false),
                        plan_at_once(other.steps.back().plan + ", tuned", instances),
                        {candidate, other.hash}});
    }
    if (const auto autotuner = place->lock()) autotuner->offer(std::move(others));
  };
  auto autotuner = std::make_shared<Autotuner>(
      Autotuner::Plan{instances > 1 ? code.back().at_once : code.back().alone,
                      launch_config_of(with_instances(last.kernel, instances), context.device->machine(), false),
                      plan_at_once(last.plan, instances),
                      {0, "model"}},
      [tuner, job = std::move(job)] {
        if (const auto t = tuner.lock()) t->later(job);
      },
      [tuner, key](const Autotuner::Plan& best) {
        if (const auto t = tuner.lock()) t->remember_soon(key, best.chosen);
      },
      context.device->is_asynchronous() ? Autotuner::kWorthApart : Autotuner::kWorthSeconds);
  *place = autotuner;
  return autotuner;
}

}  // namespace lumen::run
