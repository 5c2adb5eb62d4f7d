// A KV cache of prompt prefixes on disk (model/infer/prefixes): blocks of whole pages, written when a sequence has
// ended and read when another begins with the same tokens. What is read are the bytes that were computed. Proved by
// tests/model/infer/prefixes/kept_prefixes_test.cpp.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/arch/identity.h"
#include "model/infer/prefixes/prefixes.h"
#include "model/infer/session/session_many.h"

namespace lumen::model {

class KeptPrefixes {
 public:
  // All that caches hold depends on is read once, in the background: every weight. Both outlive this.
  // `require_whole` is asked before anything is kept, and nothing is where it throws. May be empty.
  KeptPrefixes(const LoadedModel& loaded, ManySession& session, std::shared_ptr<PrefixFiles> files,
               std::function<void()> require_whole = {});
  // False for sessions that let go of pages.
  static bool can_keep(const ManySession& session) { return session.keeps_pages(); }

  // Appends to an open sequence, whose tokens `wanted` begins with, what the files hold of the rest, the last token
  // aside. Returns how many tokens were appended.
  int64_t restore(int sequence, std::span<const TokenId> wanted);
  void save(int sequence);

 private:
  const std::string& owner(int sequence);  // waits until all weights are read

  const LoadedModel& loaded_;
  ManySession& session_;
  std::shared_ptr<PrefixFiles> files_;
  ModelIdentity identity_;
  std::function<void()> require_whole_;
  int64_t block_ = 0;                // tokens
  std::vector<std::string> owners_;  // by set of adapters, when they were asked for
};

}  // namespace lumen::model
