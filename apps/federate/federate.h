// Federated learning: clients train a network on their private data for some steps and send the change of the weights;
// a server averages (McMahan and others 2017). Each client trains in float, with weights and ranges quantized once
// before a round (strategy P), or with quantization in every step (strategy Q); measurements decide which
// (allocation.h; after FedHQ, Zheng and others 2025, arXiv 2505.11982). This header has the common types: data,
// partitions, strategies. Proved by tests/apps/federate.
//
// May include: apps/draws, apps/federate/secure, apps/images, apps/network, base, base/net, base/structured,
// graph/grad, graph/ir, graph/pass, number/codec, number/facts.
// Offers: allocation.h, messages.h.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/images/images.h"
#include "apps/network/network.h"

namespace lumen::federate {

// How a client trains: in float; quantized before the round and frozen (P); quantized in every step (Q).
enum class ClientStrategy : uint8_t { whole, after, aware };
inline constexpr int kStrategies = 3;
std::string strategy_name(ClientStrategy s);                // "float", "P", "Q"
ClientStrategy named_strategy(const std::string& name);     // Error (usage)
using Weights = std::map<std::string, std::vector<float>>;  // by the parameter's name

// Training examples: images, or windows of a text's letters with the next letter.
struct Examples {
  apps::Images images;
  int64_t side = 0;              // size of the square that images are padded to
  std::vector<int32_t> letters;  // [count, span], bytes of the text; without images
  int64_t span = 0;
  std::vector<int32_t> shown;  // [count]: an image's label, or the next letter
  int64_t classes = 0;

  int64_t count() const { return std::ssize(shown); }
  // Inputs "images" [B, side, side, C] or "letters" [B, span], and "shown" [B].
  apps::NetworkInputs batch(std::span<const int64_t> which) const;
};
inline constexpr int64_t kLetters = 128;  // classes of texts: ASCII; all other bytes are one class
Examples examples_of(apps::Images images, int64_t side);
// For every `stride`-th letter after the first `span`, that letter and the `span` letters before it.
Examples examples_of(std::string_view text, int64_t span, int64_t stride = 1);
// A copy of the examples with indices `which`.
Examples chosen(const Examples& all, std::span<const int64_t> which);

// Indices of examples by client, ascending. Every example has one client.
using Parts = std::vector<std::vector<int64_t>>;
Parts even_parts(int64_t count, int64_t clients, uint64_t seed);
// Dirichlet by class: each class is split into shares drawn from Dir(alpha), repeated until every client has at least
// `least` (Yurochkin and others 2019, Li and others 2022). Error when that does not happen.
Parts class_wise_parts(std::span<const int32_t> shown, int64_t classes, int64_t clients, double alpha, uint64_t seed,
                       int64_t least = 10);
// Dirichlet by client: each draws its mixture of classes from Dir(alpha times the whole data's) and takes an equal
// number of examples without replacement; exhausted classes are skipped (Hsu and others 2019).
Parts client_wise_parts(std::span<const int32_t> shown, int64_t classes, int64_t clients, double alpha, uint64_t seed);
// One draw of Dir(alphas): positive shares that sum to 1.
std::vector<double> dirichlet(std::span<const double> alphas, uint64_t seed, uint64_t first, uint64_t second);

// The roles of a play whose speeches begin with "NAME:" on its own line and end with an empty line: each role's
// speeches, joined; the longest texts first.
struct SpokenRole {
  std::string name, text;
};
std::vector<SpokenRole> roles_of(std::string_view play);

// The number of occurrences of each class.
std::vector<double> histogram(std::span<const int32_t> shown, int64_t classes);

}  // namespace lumen::federate
