// A prefix cache on disk (model/infer/prefixes): blocks of whole KV cache pages, written when a sequence ends and read
// when another one starts with the same tokens. The bytes read equal the computed ones. Proved by
// tests/model/infer/prefixes/kept_prefixes_test.cpp.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/arch/identity.h"
#include "model/infer/prefixes/prefixes.h"
#include "model/infer/session/session_many.h"

namespace lumen::model::infer {

class KeptPrefixes {
 public:
  // The cache key includes a hash of every weight, which is computed once, in the background. `loaded` and `session`
  // must outlive this object. `require_whole` is called before anything is stored; if it throws, nothing is stored. It
  // may be empty.
  KeptPrefixes(const LoadedModel& loaded, ManySession& session, std::shared_ptr<PrefixFiles> files,
               std::function<void()> require_whole = {});
  // False for sessions that free pages outside of a sliding window.
  static bool can_keep(const ManySession& session) { return session.keeps_pages(); }

  // Appends stored tokens to an open sequence that is a prefix of `wanted`; the last token of `wanted` is always left
  // to compute. Returns the number of tokens appended.
  int64_t restore(int sequence, std::span<const text::TokenId> wanted);
  void save(int sequence);

 private:
  const std::string& owner(int sequence);  // blocks until all weights are hashed

  const LoadedModel& loaded_;
  ManySession& session_;
  std::shared_ptr<PrefixFiles> files_;
  arch::ModelIdentity identity_;
  std::function<void()> require_whole_;
  int64_t block_ = 0;                // tokens per file
  std::vector<std::string> owners_;  // by adapter set; created on first use
};

}  // namespace lumen::model::infer
