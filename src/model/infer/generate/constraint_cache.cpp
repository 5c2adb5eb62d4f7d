#include "model/infer/generate/constraint_cache.h"

#include <algorithm>

namespace lumen::model::infer {

int64_t ConstraintCache::bytes_of(const Entry& entry) {
  return std::ssize(entry.text) + entry.constraint->states->bytes();
}

std::shared_ptr<const Constraint> ConstraintCache::find(const std::string& text, const TokenStrings* tokens) {
  const auto found = std::ranges::find_if(
      entries_, [&](const Entry& e) { return e.constraint->tokens.get() == tokens && e.text == text; });
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return entries_.front().constraint;
}

std::shared_ptr<const Constraint> ConstraintCache::get(const text::Tokenizer& tokenizer, const std::string& text,
                                                       const std::shared_ptr<const TokenStrings>& tokens) {
  {
    const std::lock_guard lock(mutex_);
    if (auto found = find(text, tokens.get())) return found;
  }
  // Others are not kept waiting while this one is parsed.
  auto made = std::make_shared<const Constraint>(tokenizer, text, tokens);
  const std::lock_guard lock(mutex_);
  if (auto found = find(text, tokens.get())) return found;
  entries_.push_front({text, made});
  int64_t all = 0;
  for (const Entry& e : entries_) all += bytes_of(e);
  for (; all > most_; entries_.pop_back()) all -= bytes_of(entries_.back());
  return made;
}

int64_t ConstraintCache::bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t all = 0;
  for (const Entry& e : entries_) all += bytes_of(e);
  return all;
}

int64_t ConstraintCache::size() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(entries_);
}

}  // namespace lumen::model::infer
