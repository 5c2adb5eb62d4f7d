#include "run/engine/verify/lone_steps/lone_steps.h"

#include <set>

#include "base/error.h"
#include "kernel/machine/without_row.h"
#include "run/engine/compile/steps.h"
#include "run/engine/verify/lone_steps/ready_steps.h"
#include "run/engine/verify/lone_steps/substitute.h"

namespace lumen::run {

namespace {

// Calls the judge for one kind of kernels.
class Case {
 public:
  Case(const CompileContext& context, const LoneSteps& work, CompileReport* report)
      : context_(context), work_(work), report_(report), plan_(work.plan ? *work.plan : graph::Plan{}) {
    options_.exact = true;
    if (work.plan) {
      form_ = form_of(plan_.graph, plan_.groups.at(0), values_of(plan_.graph));
    } else {
      plan_.groups.emplace_back();
    }
    form_.meaning = "alone: " + work.meaning + "\n" + form_.meaning;
  }
  KernelJudge::Result ask(const Synthesized& s) {
    if (const auto known = context_.judge->known(form_, s, options_)) return *known;
    const std::vector<void*> functions = find_functions(context_, s, report_);
    return context_.judge->try_out(
        {plan_, plan_.groups[0], form_, s, functions, options_, work_.plan ? nullptr : &work_.example});
  }

 private:
  const CompileContext& context_;
  const LoneSteps& work_;
  CompileReport* report_;
  graph::Plan plan_;
  GroupForm form_;
  CompileOptions options_;
};

// The device's first correct kernels, from the best to those without any special instructions; nullopt: all are wrong,
// and `why` describes the first error.
std::optional<Synthesized> trusted(const CompileContext& context, const LoneSteps& work, const Synthesized& best,
                                   CompileReport* report, std::string* why) {
  const machine::Machine& machine = context.device->machine();
  Case asked(context, work, report);
  const KernelJudge::Result first = asked.ask(best);
  if (first.right) return best;
  *why = first.why;
  const auto [used, all] = rows_to_avoid(best, machine);
  std::set<std::string> seen{best.hash};
  for (const std::set<std::string>& without : {used, all}) {
    machine::Machine rest = machine;
    for (const std::string& row : without) rest = machine::without_row(std::move(rest), row);
    const Synthesized next(work.synthesize(rest));
    if (seen.insert(next.hash).second && asked.ask(next).right) return next;
  }
  return std::nullopt;
}

}  // namespace

ChosenSteps choose_steps(const CompileContext& context, const LoneSteps& work, const OpenProcessor& processor,
                         CompileReport* report) {
  ChosenSteps out{Synthesized(work.synthesize(context.device->machine())), nullptr};
  if (!context.judge) return out;
  std::string why, place;
  if (std::optional<Synthesized> own = trusted(context, work, out.steps, report, &why)) {
    out.steps = std::move(*own);
    place = out.steps.steps.back().plan;
  } else if (context.device->is_asynchronous()) {
    out.instead = copied_steps(context.device, out.steps, load_steps(processor(), work, nullptr, report));
    place = "the processor";
  } else if (work.evaluate) {
    out.instead = evaluated_steps(work.evaluate);
    place = "the evaluator, which is slow,";
  } else {
    throw Error(Exit::verify, fmt::format("no kernel is right on {}: {}", context.device->describe(), why),
                "`lumen doctor` tests the device; --machine takes another one's code");
  }
  if (why.empty()) return out;
  context.judge->replaced(fmt::format("{}: {} takes its place", why, place));
  context.judge->say_replaced();
  return out;
}

std::unique_ptr<LoadedSteps> load_steps(const CompileContext& context, const LoneSteps& work,
                                        const OpenProcessor& processor, CompileReport* report) {
  ChosenSteps chosen = choose_steps(context, work, processor, report);
  return chosen.instead ? std::move(chosen.instead) : ready_steps(context, chosen.steps, report);
}

}  // namespace lumen::run
