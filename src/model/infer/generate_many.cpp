#include "model/infer/generate_many.h"

#include <algorithm>
#include <list>

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
        context_(loaded.model().integer("context")),
        answers_(requests.size()),
        session_(made(loaded)) {
    if (!options.generate.grammar.empty()) constraint_.emplace(tokenizer_, options.generate.grammar);
  }

  std::vector<ManyAnswer> run(const std::function<bool()>& go_on) {
    while (next_ < requests_.size() || !active_.empty()) {
      if (!go_on()) {
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

 private:
  struct Active {
    size_t request = 0;
    int text = 0;
    int64_t most = 0;              // tokens of this text
    std::vector<TokenId> pending;  // not yet computed
    std::unique_ptr<Sampler> sampler;
    std::unique_ptr<GrammarMatcher> matcher;
    std::unique_ptr<Answer> answer;
  };

  // Tokens a text may have in the end, its last one, which nobody reads, aside.
  int64_t most_of(size_t request) const {
    const auto prompt = static_cast<int64_t>(requests_[request].prompt.size());
    if (prompt < 1) throw usage_error("a prompt is empty");
    const int64_t predict = options_.generate.predict;
    const int64_t room = session_places_ > 0 ? session_places_ : context_;
    if (prompt > room)
      throw Error(Exit::user, fmt::format("prompt {} has {} tokens, but a text may have {}", request + 1, prompt, room),
                  "shorten the prompt, or raise --ctx-size");
    if (predict < 0) return session_places_ > 0 ? std::max(prompt, session_places_ / parallel()) : context_;
    return std::min(room, prompt + std::max<int64_t>(predict, 1) - 1);
  }

  int64_t parallel() const { return std::min<int64_t>(options_.parallel, static_cast<int64_t>(requests_.size())); }

  SessionOptions planned() {
    if (requests_.empty()) throw usage_error("no prompts");
    if (options_.parallel < 1 || options_.parallel > ManySession::kMostTexts)
      throw usage_error("from 1 to {} texts can be written at once", ManySession::kMostTexts);
    SessionOptions session = options_.session;
    session_places_ = session.context;
    for (size_t i = 0; i < requests_.size(); ++i) most_.push_back(most_of(i));
    if (session.context == 0) {
      std::vector<int64_t> needs = most_;
      std::sort(needs.rbegin(), needs.rend());
      for (int64_t i = 0; i < parallel(); ++i) session.context += needs[static_cast<size_t>(i)];
    }
    session_places_ = session.context;
    return session;
  }

  ManySession made(const LoadedModel& loaded) {
    SessionOptions session = planned();
    return ManySession(loaded, std::move(session), *std::max_element(most_.begin(), most_.end()));
  }

  // The next in line, where there is room for all it may become.
  bool admit() {
    if (next_ >= requests_.size() || static_cast<int64_t>(active_.size()) >= parallel()) return false;
    const int64_t most = most_[next_];
    if (reserved_ + most > session_places_) return false;
    Active a;
    a.request = next_++;
    a.most = most;
    a.text = session_.open();
    const std::vector<TokenId>& prompt = requests_[a.request].prompt;
    // The last token is computed in any case: what follows it is asked for.
    int64_t known = 0;
    int from = -1;
    for (const Active& other : active_) {
      const std::vector<TokenId>& theirs = session_.tokens(other.text);
      const auto same = std::mismatch(prompt.begin(), prompt.end(), theirs.begin(), theirs.end());
      const auto count = std::min<int64_t>(same.first - prompt.begin(), static_cast<int64_t>(prompt.size()) - 1);
      if (count <= known) continue;
      known = count;
      from = other.text;
    }
    if (from >= 0) session_.share(from, a.text, known);
    a.pending.assign(prompt.begin() + known, prompt.end());
    answers_[a.request].shared = known;
    answers_[a.request].read = static_cast<int64_t>(a.pending.size());
    SamplerOptions sampling = options_.sampling;
    sampling.seed = requests_[a.request].seed;
    a.sampler = std::make_unique<Sampler>(sampling);
    for (const TokenId id : prompt) a.sampler->accept(id);
    if (constraint_) a.matcher = std::make_unique<GrammarMatcher>(constraint_->grammar);
    a.answer =
        std::make_unique<Answer>(tokenizer_, options_.generate, *a.sampler, constraint_ ? &*constraint_ : nullptr,
                                 a.matcher.get(), [](std::string_view) {});
    reserved_ += most;
    active_.push_back(std::move(a));
    return true;
  }

  std::list<Active>::iterator finish(std::list<Active>::iterator a) {
    ManyAnswer& out = answers_[a->request];
    out.reason = a->answer->finish();
    out.text = a->answer->text();
    out.made = a->answer->made();
    session_.close(a->text);
    reserved_ -= a->most;
    if (done_) done_(a->request, out);
    return active_.erase(a);
  }

  // The next token of all, and the prompt of one that joins them.
  void step() {
    if (!admit()) LUMEN_CHECK(!active_.empty(), "no text fits");
    std::vector<ManySession::Part> parts;
    for (const Active& a : active_) parts.push_back({a.text, a.pending});
    const std::vector<std::vector<float>> logits = session_.feed(parts);
    size_t n = 0;
    for (auto a = active_.begin(); a != active_.end();) {
      const std::optional<TokenId> id = a->answer->draw(logits[n++]);
      if (id && !a->answer->ended()) {
        a->pending = {*id};
        if (session_.length(a->text) + 1 > a->most) a->answer->end(EndReason::context);
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
  int64_t context_;
  int64_t session_places_ = 0;
  std::vector<int64_t> most_;  // tokens of each text, in the end
  std::vector<ManyAnswer> answers_;
  ManySession session_;
  std::optional<Constraint> constraint_;
  std::list<Active> active_;
  size_t next_ = 0;
  int64_t reserved_ = 0;
};

}  // namespace

std::vector<ManyAnswer> answer_all(const LoadedModel& loaded, const ManyOptions& options,
                                   const std::vector<ManyRequest>& requests,
                                   const std::function<void(size_t, const ManyAnswer&)>& done,
                                   const std::function<bool()>& go_on) {
  if (options.generate.shift) throw usage_error("many texts at once cannot shift their context");
  return Writer(loaded, options, requests, done).run(go_on);
}

}  // namespace lumen::model
