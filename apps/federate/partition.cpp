#include <algorithm>
#include <cmath>
#include <numeric>

#include "apps/draws/draws.h"
#include "apps/federate/federate.h"
#include "base/check.h"
#include "base/error.h"

namespace lumen::federate {
namespace {

constexpr uint64_t kPartDraws = 0x70617274, kMixtureDraws = 0x6d697874;
constexpr int kMostTries = 2000;

void shuffle(std::vector<int64_t>& numbers, Draws& draws) {
  for (int64_t i = std::ssize(numbers) - 1; i > 0; --i) std::swap(numbers[i], numbers[draws.below(i + 1)]);
}

// Marsaglia and Tsang 2000; for alpha < 1 by Gamma(a + 1) U^(1/a).
double gamma_draw(double alpha, Draws& draws) {
  if (alpha < 1) return gamma_draw(alpha + 1, draws) * std::pow(1 - draws.uniform(), 1 / alpha);
  const double d = alpha - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = draws.normal(), v = std::pow(1 + c * x, 3);
    if (v <= 0) continue;
    const double u = 1 - draws.uniform();
    if (std::log(u) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
  }
}

void require_parts(int64_t count, int64_t clients) {
  if (clients < 1 || count < clients)
    throw user_error("{} examples cannot be divided among {} clients", count, clients);
}

std::vector<std::vector<int64_t>> by_class(std::span<const int32_t> shown, int64_t classes) {
  std::vector<std::vector<int64_t>> out(classes);
  for (int64_t i = 0; i < std::ssize(shown); ++i) {
    LUMEN_CHECK(shown[i] >= 0 && shown[i] < classes, "class {} of {}", shown[i], classes);
    out[shown[i]].push_back(i);
  }
  return out;
}

Parts sorted(Parts parts) {
  for (auto& part : parts) std::sort(part.begin(), part.end());
  return parts;
}

}  // namespace

std::string strategy_name(ClientStrategy s) {
  return s == ClientStrategy::whole ? "float" : s == ClientStrategy::after ? "P" : "Q";
}

ClientStrategy named_strategy(const std::string& name) {
  for (int i = 0; i < kStrategies; ++i)
    if (strategy_name(ClientStrategy(i)) == name) return ClientStrategy(i);
  throw Error(Exit::usage, fmt::format("'{}' is no strategy", name), "float, P or Q");
}

apps::NetworkInputs Examples::batch(std::span<const int64_t> which) const {
  apps::NetworkInputs out;
  out.symbols = {{"B", std::ssize(which)}};
  std::vector<int32_t>& named = out.integers["shown"];
  for (const int64_t i : which) named.push_back(shown[i]);
  if (images.count > 0) {
    out.numbers["images"] = apps::framed(images, which, side);
    return out;
  }
  std::vector<int32_t>& before = out.integers["letters"];
  for (const int64_t i : which)
    before.insert(before.end(), letters.begin() + i * span, letters.begin() + (i + 1) * span);
  return out;
}

Examples examples_of(apps::Images images, int64_t side) {
  if (images.height > side || images.width > side)
    throw user_error("images of {} x {} are larger than the family's {}", images.height, images.width, side);
  Examples out;
  out.shown = images.labels;
  out.classes = images.classes();
  out.images = std::move(images);
  out.side = side;
  return out;
}

Examples examples_of(std::string_view text, int64_t span, int64_t stride) {
  LUMEN_CHECK(span > 0 && stride > 0);
  const auto letter = [&](int64_t i) { return std::min<int32_t>(uint8_t(text[i]), kLetters - 1); };
  Examples out;
  out.span = span;
  out.classes = kLetters;
  for (int64_t at = span; at < std::ssize(text); at += stride) {
    for (int64_t i = at - span; i < at; ++i) out.letters.push_back(letter(i));
    out.shown.push_back(letter(at));
  }
  return out;
}

Examples chosen(const Examples& all, std::span<const int64_t> which) {
  Examples out;
  out.side = all.side;
  out.span = all.span;
  out.classes = all.classes;
  out.images = {0, all.images.height, all.images.width, all.images.channels, {}, {}};
  const int64_t pixels = all.images.count > 0 ? all.images.height * all.images.width * all.images.channels : 0;
  for (const int64_t i : which) {
    out.shown.push_back(all.shown[i]);
    out.letters.insert(out.letters.end(), all.letters.begin() + i * all.span, all.letters.begin() + (i + 1) * all.span);
    const auto from = all.images.pixels.begin() + i * pixels;
    out.images.pixels.insert(out.images.pixels.end(), from, from + pixels);
  }
  if (pixels > 0) {
    out.images.labels = out.shown;
    out.images.count = std::ssize(which);
  }
  return out;
}

Parts even_parts(int64_t count, int64_t clients, uint64_t seed) {
  require_parts(count, clients);
  std::vector<int64_t> all(count);
  std::iota(all.begin(), all.end(), 0);
  Draws draws(seed, kPartDraws);
  shuffle(all, draws);
  Parts out(clients);
  for (int64_t i = 0; i < count; ++i) out[i % clients].push_back(all[i]);
  return sorted(std::move(out));
}

std::vector<double> dirichlet(std::span<const double> alphas, uint64_t seed, uint64_t first, uint64_t second) {
  Draws draws(seed ^ kMixtureDraws, first, second);
  std::vector<double> out;
  double sum = 0;
  for (const double alpha : alphas) {
    LUMEN_CHECK(alpha >= 0);
    out.push_back(alpha > 0 ? gamma_draw(alpha, draws) : 0);
    sum += out.back();
  }
  // All underflow to 0: one of them becomes 1, as in the limit.
  if (sum <= 0) {
    out[draws.below(std::ssize(out))] = 1;
    sum = 1;
  }
  for (double& share : out) share /= sum;
  return out;
}

Parts class_wise_parts(std::span<const int32_t> shown, int64_t classes, int64_t clients, double alpha, uint64_t seed,
                       int64_t least) {
  require_parts(std::ssize(shown), clients);
  const std::vector<double> alphas(clients, alpha);
  for (int attempt = 0; attempt < kMostTries; ++attempt) {
    Parts out(clients);
    auto numbers = by_class(shown, classes);
    for (int64_t k = 0; k < classes; ++k) {
      Draws draws(seed, kPartDraws, attempt * classes + k);
      shuffle(numbers[k], draws);
      const std::vector<double> shares = dirichlet(alphas, seed, attempt, k);
      double upto = 0;
      int64_t at = 0;
      for (int64_t j = 0; j < clients; ++j) {
        upto += shares[j];
        const int64_t n = std::ssize(numbers[k]);
        const int64_t end = j + 1 == clients ? n : std::clamp<int64_t>(std::llround(upto * n), at, n);
        out[j].insert(out[j].end(), numbers[k].begin() + at, numbers[k].begin() + end);
        at = end;
      }
    }
    if (std::all_of(out.begin(), out.end(), [&](const auto& part) { return std::ssize(part) >= least; }))
      return sorted(std::move(out));
  }
  throw Error(Exit::user,
              fmt::format("{} draws of Dir({}) for {} clients left a client with less than {} of {} examples",
                          kMostTries, alpha, clients, least, shown.size()),
              "more examples, fewer clients, or a larger alpha");
}

Parts client_wise_parts(std::span<const int32_t> shown, int64_t classes, int64_t clients, double alpha, uint64_t seed) {
  require_parts(std::ssize(shown), clients);
  auto left = by_class(shown, classes);
  for (int64_t k = 0; k < classes; ++k) {
    Draws draws(seed, kPartDraws, k);
    shuffle(left[k], draws);
  }
  std::vector<double> alphas(classes);
  for (int64_t k = 0; k < classes; ++k) alphas[k] = alpha * std::ssize(left[k]) / std::ssize(shown);
  Parts out(clients);
  for (int64_t j = 0; j < clients; ++j) {
    const std::vector<double> mixture = dirichlet(alphas, seed, j, 0);
    Draws draws(seed, kPartDraws, classes + j);
    const int64_t size = std::ssize(shown) * (j + 1) / clients - std::ssize(shown) * j / clients;
    for (int64_t n = 0; n < size; ++n) {
      std::vector<double> weights(classes);
      double sum = 0;
      for (int64_t k = 0; k < classes; ++k) sum += weights[k] = left[k].empty() ? 0 : mixture[k];
      // All wanted classes are exhausted: draws from the remaining classes by frequency.
      if (sum <= 0)
        for (int64_t k = 0; k < classes; ++k) sum += weights[k] = std::ssize(left[k]);
      double at = draws.uniform() * sum;
      int64_t k = 0, last = 0;
      for (; k < classes; ++k) {
        if (weights[k] <= 0) continue;
        last = k;
        if ((at -= weights[k]) < 0) break;
      }
      k = std::min(k, last);
      out[j].push_back(left[k].back());
      left[k].pop_back();
    }
  }
  return sorted(std::move(out));
}

std::vector<SpokenRole> roles_of(std::string_view play) {
  std::map<std::string, std::string> said;
  std::string role;
  bool is_new = true;  // this line may be a name
  for (size_t at = 0; at < play.size();) {
    const size_t end = std::min(play.find('\n', at), play.size());
    const std::string_view line = play.substr(at, end - at);
    at = end + 1;
    if (line.empty()) {
      is_new = true;
    } else if (is_new && line.back() == ':') {
      role = line.substr(0, line.size() - 1);
      is_new = false;
    } else if (!role.empty()) {
      said[role] += std::string(line) + '\n';
      is_new = false;
    }
  }
  std::vector<SpokenRole> out;
  for (auto& [name, text] : said) out.push_back({name, std::move(text)});
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.text.size() > b.text.size(); });
  return out;
}

std::vector<double> histogram(std::span<const int32_t> shown, int64_t classes) {
  std::vector<double> out(classes);
  for (const int32_t k : shown) {
    LUMEN_CHECK(k >= 0 && k < classes, "class {} of {}", k, classes);
    ++out[k];
  }
  return out;
}

}  // namespace lumen::federate
