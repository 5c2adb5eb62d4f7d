// Federated training: clients that keep their data train a network's weights for some steps and send what changed, a
// server averages (McMahan and others 2017). Each client trains in float, with numbers quantized once before a round
// (strategy P), or with quantization in every step (strategy Q); who does which follows from measurements
// (allocation.h; after FedHQ, Zheng and others 2025, arXiv 2505.11982). This door has what all parts speak of: data,
// how they are parted, strategies. Proved by tests/model/federate.
//
// May include: base, base/net, base/structured, graph/grad, graph/ir, graph/pass, model/federate/secure, model/images,
// model/network, number/codec, number/facts.
// Offers: allocation.h, messages.h.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/images/images.h"
#include "model/network/network.h"

namespace lumen::model {

// How a client trains: in float; quantized before the round and frozen (P); quantized in every step (Q).
enum class ClientStrategy : uint8_t { whole, after, aware };
inline constexpr int kStrategies = 3;
std::string strategy_name(ClientStrategy s);                // "float", "P", "Q"
ClientStrategy named_strategy(const std::string& name);     // Error (usage)
using Weights = std::map<std::string, std::vector<float>>;  // by the parameter's name

// What is learned from, example by example: images, or letters of a text and the one that follows.
struct Examples {
  Images images;
  int64_t side = 0;              // images lie in so large a square
  std::vector<int32_t> letters;  // [count, span], bytes of the text; where there are no images
  int64_t span = 0;
  std::vector<int32_t> shown;  // [count]: what an image shows, or the next letter
  int64_t classes = 0;

  int64_t count() const { return std::ssize(shown); }
  // Inputs "images" [B, side, side, C] or "letters" [B, span], and "shown" [B].
  NetworkInputs batch(std::span<const int64_t> which) const;
};
inline constexpr int64_t kLetters = 128;  // classes of texts: ASCII; other bytes are all one
Examples examples_of(Images images, int64_t side);
// Each letter of a text behind its first `span` with those before it; every `stride`-th.
Examples examples_of(std::string_view text, int64_t span, int64_t stride = 1);
// The examples that `which` names, as data of their own.
Examples chosen(const Examples& all, std::span<const int64_t> which);

// Numbers of examples by client, rising. Every example has one client.
using Parts = std::vector<std::vector<int64_t>>;
Parts even_parts(int64_t count, int64_t clients, uint64_t seed);
// Dirichlet by class: each class is dealt out in shares drawn from Dir(alpha), until nobody has less than `least`
// (Yurochkin and others 2019, Li and others 2022). Error when that does not come to be.
Parts class_wise_parts(std::span<const int32_t> shown, int64_t classes, int64_t clients, double alpha, uint64_t seed,
                       int64_t least = 10);
// Dirichlet by client: each draws its mixture of classes from Dir(alpha times the whole data's) and takes as many
// examples as everyone, without giving any back; a class that has run out is left away (Hsu and others 2019).
Parts client_wise_parts(std::span<const int32_t> shown, int64_t classes, int64_t clients, double alpha, uint64_t seed);
// One draw of Dir(alphas): positive shares that sum to 1.
std::vector<double> dirichlet(std::span<const double> alphas, uint64_t seed, uint64_t first, uint64_t second);

// The roles of a play whose speeches begin with "NAME:" on a line of its own and end with an empty line: what each
// says, joined, those who say most first.
struct SpokenRole {
  std::string name, text;
};
std::vector<SpokenRole> roles_of(std::string_view play);

// How often each class occurs.
std::vector<double> histogram(std::span<const int32_t> shown, int64_t classes);

}  // namespace lumen::model
