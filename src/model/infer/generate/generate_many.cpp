#include "model/infer/generate/generate_many.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace lumen::model::infer {
namespace {

// Maximum length of a sequence without its last token, which the model does not compute.
int64_t most_of(const ManyOptions& options, const std::vector<ManyRequest>& requests, size_t request, int64_t context) {
  const auto prompt = std::ssize(requests[request].prompt);
  if (prompt < 1) throw usage_error("a prompt is empty");
  const int64_t predict = options.generate.predict, places = options.session.context;
  const int64_t room = places > 0 ? places : context;
  if (prompt > room)
    throw Error(Exit::user, fmt::format("prompt {} has {} tokens, but the context holds {}", request + 1, prompt, room),
                "shorten the prompt, or raise --ctx-size");
  const int64_t parallel = std::min<int64_t>(options.parallel, requests.size());
  if (predict < 0) return places > 0 ? std::max(prompt, places / parallel) : context;
  return std::min(room, prompt + std::clamp<int64_t>(predict, 1, std::max<int64_t>(room, 1)) - 1);
}

}  // namespace

// Each sequence is counted with the pages that it does not share with the request before it; one is counted with all
// its pages.
ManyPlan plan_requests(const arch::Model& model, const ManyOptions& options, const std::vector<ManyRequest>& requests) {
  if (requests.empty()) throw usage_error("no prompts");
  if (options.parallel < 1 || options.parallel > ManySession::kMostSequences)
    throw usage_error("from 1 to {} sequences can be generated at once", ManySession::kMostSequences);
  ManyPlan plan;
  plan.session = options.session;
  std::vector<int64_t> pages, own;
  const int64_t size = plan.session.page;
  for (size_t i = 0; i < requests.size(); ++i) {
    plan.most.push_back(most_of(options, requests, i, model.integer("context")));
    pages.push_back((plan.most.back() + size - 1) / size);
    int64_t shared = 0;
    if (i > 0) {
      const std::vector<text::TokenId>&mine = requests[i].prompt, &before = requests[i - 1].prompt;
      const auto same = std::mismatch(mine.begin(), mine.end(), before.begin(), before.end());
      shared = std::min<int64_t>(same.first - mine.begin(), mine.size() - 1) / size;
    }
    own.push_back(pages.back() - shared);
  }
  plan.limits.longest = *std::max_element(plan.most.begin(), plan.most.end());
  plan.limits.sequences = std::min<int64_t>(options.parallel, requests.size());
  if (options.draft.is_on()) plan.limits = with_drafts(options.draft, plan.limits);
  if (plan.session.context == 0) {
    std::sort(own.rbegin(), own.rend());
    const size_t count = plan.limits.sequences;
    const int64_t all = *std::max_element(pages.begin(), pages.end()) +
                        std::accumulate(own.begin(), own.begin() + count, int64_t{0}) - own[0];
    plan.session.context = all * size;
  }
  return plan;
}

std::vector<ManyAnswer> answer_all(const LoadedModel& loaded, const ManyOptions& options,
                                   const std::vector<ManyRequest>& requests,
                                   const std::function<void(size_t, const ManyAnswer&)>& done,
                                   const std::function<bool()>& go_on, std::string* explained) {
  if (options.generate.shift) throw usage_error("--context-shift works with one sequence at a time");
  ManyPlan plan = plan_requests(loaded.model(), options, requests);
  SequenceBatch batch(loaded, plan.session, plan.limits, plan.limits.sequences);
  batch.draft_with(make_draft(options.draft, plan.session, plan.limits));
  std::shared_ptr<const Constraint> constraint;
  if (!options.generate.grammar.empty())
    constraint = std::make_shared<const Constraint>(*loaded.model().tokenizer, options.generate.grammar);
  std::vector<ManyAnswer> answers(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    SequenceOrder order;
    order.prompt = requests[i].prompt;
    order.sampling = options.sampling;
    order.sampling.seed = requests[i].seed;
    order.generate = options.generate;
    order.generate.draft = options.draft.most;
    order.constraint = constraint;
    order.most = plan.most[i];
    order.done = [&, i](const ManyAnswer& answer) {
      answers[i] = answer;
      const bool has_begun = answer.read + answer.shared > 0;
      if (done && has_begun) done(i, answer);
    };
    batch.add(std::move(order));
  }
  bool goes_on = true;
  while ((goes_on = go_on()) && batch.step()) {
  }
  if (!goes_on) batch.remove_all();
  if (explained) *explained = batch.session().explain();
  return answers;
}

}  // namespace lumen::model::infer
