// The budget of a compressed model, as users write it: a size, bits per weight, a loss of quality, or a time.
// Proved by tests/model/compress/choose/budget_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lumen::model::compress {

struct Budget {
  enum class Kind {
    bytes,       // of all weights: minimizes the score within it
    bits,        // per weight, everything counted; likewise
    time,        // ms per token; likewise
    divergence,  // nats of predicted KL divergence: minimizes the bytes within it
    loss,        // predicted relative rise of perplexity, 0.01 for 1 %; likewise
  };
  Kind kind = Kind::bits;
  double value = 0;

  // Whether the score is limited and bytes are minimized, rather than the other way round.
  bool limits_score() const { return kind == Kind::divergence || kind == Kind::loss; }
  bool limits_size() const { return kind == Kind::bytes || kind == Kind::bits; }
  double most_score() const;                  // nats; for a budget that limits scores
  int64_t most_bytes(int64_t weights) const;  // for one that limits bytes or bits
  std::string text() const;                   // in the syntax of parse_budget
  bool operator==(const Budget&) const = default;
};

// "4.2bpw", "3.5GB" (10^9 bytes), "3.5GiB" (2^30), "900MB", "kl=0.02", "ppl=+1%", "12ms"; case and blanks do not
// matter. Error (usage) that names the fault and lists the forms.
Budget parse_budget(std::string_view text);

}  // namespace lumen::model::compress
