#include "model/infer/generate/generate_many.h"

#include <algorithm>
#include <list>
#include <numeric>

#include "base/check.h"
#include "base/error.h"

namespace lumen::model {
namespace {

class Writer {
 public:
  Writer(const LoadedModel& loaded, const ManyOptions& options, const std::vector<ManyRequest>& requests,
         const std::function<void(size_t, const ManyAnswer&)>& done)
      : tokenizer_(*loaded.model().tokenizer),
        options_(options),
        requests_(requests),
        done_(done),
        answers_(requests.size()),
        session_(made(loaded)),
        forbidden_(never_drawn(tokenizer_, loaded.model().integer("vocab"), options.generate.ignore_end)) {
    if (!options.generate.grammar.empty()) constraint_.emplace(tokenizer_, options.generate.grammar);
  }

  std::vector<ManyAnswer> run(const std::function<bool()>& go_on) {
    while (next_ < requests_.size() || !active_.empty() || !waiting_.empty()) {
      if (!go_on()) {
        for (Active& a : waiting_) {
          a.text = session_.open();  // finish() closes one
          active_.push_back(std::move(a));
        }
        waiting_.clear();
        for (auto a = active_.begin(); a != active_.end();) {
          a->answer->end(EndReason::interrupted);
          a = finish(a);
        }
        break;
      }
      step();
    }
    return std::move(answers_);
  }

  std::string explain() const { return session_.explain(); }

 private:
  struct Active {
    size_t request = 0;
    int text = 0;
    std::vector<TokenId> pending;  // not yet computed
    std::unique_ptr<Sampler> sampler;
    std::unique_ptr<GrammarMatcher> matcher;
    std::unique_ptr<Answer> answer;
  };

  int64_t parallel() const { return std::min<int64_t>(options_.parallel, requests_.size()); }

  ManySession made(const LoadedModel& loaded) {
    const ManyPlan plan = plan_requests(loaded.model(), options_, requests_);
    most_ = plan.most;
    return ManySession(loaded, plan.session, plan.limits);
  }

  // How much of `tokens` some text has already. The last token is computed in any case: what follows it is asked for.
  std::pair<int64_t, int> known(const std::vector<TokenId>& tokens) const {
    std::pair<int64_t, int> best{0, -1};
    for (const Active& other : active_) {
      const std::vector<TokenId>& theirs = session_.tokens(other.text);
      const auto same = std::mismatch(tokens.begin(), tokens.end(), theirs.begin(), theirs.end());
      const auto count = std::min<int64_t>(same.first - tokens.begin(), tokens.size() - 1);
      if (count > best.first) best = {count, other.text};
    }
    return best;
  }

  // The next in line, where there is room for what it begins with, and for a page more of each text.
  bool admit() {
    const bool again = !waiting_.empty();
    if ((!again && next_ >= requests_.size()) || std::ssize(active_) >= limit_) return false;
    const std::vector<TokenId>& tokens = again ? waiting_.front().pending : requests_[next_].prompt;
    const auto [count, from] = known(tokens);
    const int64_t size = session_.page_size();
    const int64_t pages = (std::ssize(tokens) + size - 1) / size - count / size;
    if (!active_.empty() && pages + std::ssize(active_) > session_.free_pages()) return false;
    Active a = again ? std::move(waiting_.front()) : begin(next_++);
    if (again) waiting_.pop_front();
    a.text = session_.open();
    const int64_t shared = from >= 0 ? session_.share(from, a.text, count) : 0;
    ManyAnswer& out = answers_[a.request];
    const int64_t left = a.pending.size() - shared;
    if (again) {
      out.again += left;
    } else {
      out.shared = shared;
      out.read = left;
    }
    a.pending.erase(a.pending.begin(), a.pending.begin() + shared);
    active_.push_back(std::move(a));
    return true;
  }

  Active begin(size_t request) {
    Active a;
    a.request = request;
    a.pending = requests_[request].prompt;
    SamplerOptions sampling = options_.sampling;
    sampling.seed = requests_[request].seed;
    sampling.forbidden.insert(sampling.forbidden.end(), forbidden_.begin(), forbidden_.end());
    a.sampler = std::make_unique<Sampler>(sampling);
    for (const TokenId id : a.pending) a.sampler->accept(id);
    if (constraint_) a.matcher = std::make_unique<GrammarMatcher>(constraint_->grammar);
    a.answer =
        std::make_unique<Answer>(tokenizer_, options_.generate, *a.sampler, constraint_ ? &*constraint_ : nullptr,
                                 a.matcher.get(), [](std::string_view) {});
    return a;
  }

  // The text that came last gives its pages to the others, and will be read again when there is room.
  void put_back() {
    LUMEN_CHECK(active_.size() > 1, "a text alone has no room");
    Active a = std::move(active_.back());
    active_.pop_back();
    std::vector<TokenId> whole = session_.tokens(a.text);
    whole.insert(whole.end(), a.pending.begin(), a.pending.end());
    a.pending = std::move(whole);
    session_.close(a.text);
    waiting_.push_front(std::move(a));
    limit_ = active_.size();  // until one of them ends
  }

  std::list<Active>::iterator finish(std::list<Active>::iterator a) {
    ManyAnswer& out = answers_[a->request];
    out.reason = a->answer->finish();
    out.text = a->answer->text();
    out.made = a->answer->made();
    session_.close(a->text);
    limit_ = parallel();
    if (done_) done_(a->request, out);
    return active_.erase(a);
  }

  int64_t missing() const {
    int64_t pages = 0;
    for (const Active& a : active_) pages += session_.missing_pages(a.text, a.pending.size());
    return pages;
  }

  // The next token of all, and the prompt of one that joins them.
  void step() {
    if (!admit()) LUMEN_CHECK(!active_.empty(), "no text fits");
    while (missing() > session_.free_pages()) put_back();
    std::vector<ManySession::Part> parts;
    for (const Active& a : active_) parts.push_back({a.text, a.pending});
    const std::vector<std::vector<float>> logits = session_.feed(parts);
    size_t n = 0;
    for (auto a = active_.begin(); a != active_.end();) {
      const std::optional<TokenId> id = a->answer->draw(logits[n++]);
      if (id && !a->answer->ended()) {
        a->pending = {*id};
        if (session_.length(a->text) + 1 > most_[a->request]) a->answer->end(EndReason::context);
      }
      if (a->answer->ended()) {
        a = finish(a);
      } else {
        ++a;
      }
    }
  }

  const Tokenizer& tokenizer_;
  const ManyOptions& options_;
  const std::vector<ManyRequest>& requests_;
  const std::function<void(size_t, const ManyAnswer&)>& done_;
  std::vector<int64_t> most_;  // tokens of each text, in the end
  std::vector<ManyAnswer> answers_;
  ManySession session_;
  std::vector<TokenId> forbidden_;
  std::optional<Constraint> constraint_;
  std::list<Active> active_, waiting_;  // those that wait were put back
  size_t next_ = 0;
  int64_t limit_ = parallel();  // texts at once, for now
};

}  // namespace

namespace {

// Tokens a text may have in the end, its last one, which nobody reads, aside.
int64_t most_of(const ManyOptions& options, const std::vector<ManyRequest>& requests, size_t request, int64_t context) {
  const auto prompt = std::ssize(requests[request].prompt);
  if (prompt < 1) throw usage_error("a prompt is empty");
  const int64_t predict = options.generate.predict, places = options.session.context;
  const int64_t room = places > 0 ? places : context;
  if (prompt > room)
    throw Error(Exit::user, fmt::format("prompt {} has {} tokens, but a text may have {}", request + 1, prompt, room),
                "shorten the prompt, or raise --ctx-size");
  const int64_t parallel = std::min<int64_t>(options.parallel, requests.size());
  if (predict < 0) return places > 0 ? std::max(prompt, places / parallel) : context;
  return std::min(room, prompt + std::clamp<int64_t>(predict, 1, std::max<int64_t>(room, 1)) - 1);
}

}  // namespace

// Each text takes the pages it does not share with the one before it in line; one takes all of its own.
ManyPlan plan_requests(const Model& model, const ManyOptions& options, const std::vector<ManyRequest>& requests) {
  if (requests.empty()) throw usage_error("no prompts");
  if (options.parallel < 1 || options.parallel > ManySession::kMostTexts)
    throw usage_error("from 1 to {} texts can be written at once", ManySession::kMostTexts);
  ManyPlan plan;
  plan.session = options.session;
  std::vector<int64_t> pages, own;
  const int64_t size = plan.session.page;
  for (size_t i = 0; i < requests.size(); ++i) {
    plan.most.push_back(most_of(options, requests, i, model.integer("context")));
    pages.push_back((plan.most.back() + size - 1) / size);
    int64_t shared = 0;
    if (i > 0) {
      const std::vector<TokenId>&mine = requests[i].prompt, &before = requests[i - 1].prompt;
      const auto same = std::mismatch(mine.begin(), mine.end(), before.begin(), before.end());
      shared = std::min<int64_t>(same.first - mine.begin(), mine.size() - 1) / size;
    }
    own.push_back(pages.back() - shared);
  }
  plan.limits.longest = *std::max_element(plan.most.begin(), plan.most.end());
  plan.limits.texts = std::min<int64_t>(options.parallel, requests.size());
  if (plan.session.context == 0) {
    std::sort(own.rbegin(), own.rend());
    const size_t count = plan.limits.texts;
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
  if (options.generate.shift) throw usage_error("--context-shift is for one text at a time");
  Writer writer(loaded, options, requests, done);
  std::vector<ManyAnswer> answers = writer.run(go_on);
  if (explained) *explained = writer.explain();
  return answers;
}

}  // namespace lumen::model
