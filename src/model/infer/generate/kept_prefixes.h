// A prefix cache on disk (model/infer/prefixes): blocks of whole KV cache pages, written when a sequence ends and read
// when another one starts with the same tokens. Recurrent states are in files of their own, at those ends of blocks
// where the sequence has a mark, and only prefixes up to there are read. The bytes read equal the computed ones. Proved
// by
// tests/model/infer/prefixes/kept_prefixes_test.cpp.
#pragma once

#include <functional>
#include <memory>
#include <optional>
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
  // Where a prompt of `tokens` tokens should have a mark of recurrent states: the last end of a block in it; 0: none.
  int64_t mark_of(int64_t tokens) const;

 private:
  std::vector<std::string> read_blocks(int sequence, std::span<const text::TokenId> wanted, int64_t begin, int64_t end);
  void append(int sequence, std::span<const text::TokenId> wanted, int64_t begin,
              const std::vector<std::string>& blocks);
  int64_t restore_with_states(int sequence, std::span<const text::TokenId> wanted);
  void save_blocks(int sequence, int64_t end);
  // Recurrent states are stored in parts, because the sizes of files are limited.
  int64_t parts_of_states();
  std::string owner_of_states(int sequence, int64_t part);
  bool has_states(int sequence, std::span<const text::TokenId> prefix);
  std::optional<std::string> read_states(int sequence, std::span<const text::TokenId> prefix);
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
