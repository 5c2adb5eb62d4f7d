#include "graph/equivalence/hadamard.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/error.h"

namespace lumen::graph {

namespace {

constexpr int64_t kMostWilliamson = 51, kMostOrbits = 11, kMostPaley = 2048, kWidestPower = 16;

bool is_prime(int64_t n) {
  if (n < 2) return false;
  for (int64_t d = 2; d * d <= n; ++d)
    if (n % d == 0) return false;
  return true;
}

SignMatrix empty(int64_t n) {
  return {n, std::vector<int8_t>(n * n, 1)};
}

SignMatrix sylvester(int64_t n) {
  SignMatrix h = empty(n);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) h.values[i * n + j] = __builtin_popcountll(i & j) % 2 == 0 ? 1 : -1;
  return h;
}

// Quadratic characters: 1 for squares modulo a prime, -1 for others, 0 for 0.
std::vector<int> characters(int64_t q) {
  std::vector<int> c(q, -1);
  c[0] = 0;
  for (int64_t x = 1; x < q; ++x) c[x * x % q] = 1;
  return c;
}

// Order q + 1, for primes q = 3 modulo 4: I + S with a skew-symmetric S of characters of differences.
SignMatrix paley_one(int64_t q) {
  const std::vector<int> c = characters(q);
  SignMatrix h = empty(q + 1);
  for (int64_t i = 0; i <= q; ++i)
    for (int64_t j = 0; j <= q; ++j) {
      int v = 1;
      if (i > 0 && j == 0) v = -1;
      if (i > 0 && j > 0) v = i == j ? 1 : c[(i - j + q) % q];
      h.values[i * (q + 1) + j] = v;
    }
  return h;
}

// Order 2 (q + 1), for primes q = 1 modulo 4: entries of a symmetric conference matrix become blocks of two.
SignMatrix paley_two(int64_t q) {
  const std::vector<int> c = characters(q);
  const int64_t n = 2 * (q + 1);
  SignMatrix h = empty(n);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const int64_t a = i / 2, b = j / 2;
      const bool lower = i % 2 == 1 && j % 2 == 1;
      int v = 0;
      if (a == b) {
        v = i % 2 == 0 && j % 2 == 0 ? 1 : -1;
      } else {
        const int s = a == 0 || b == 0 ? 1 : c[(a - b + q) % q];
        v = lower ? -s : s;
      }
      h.values[i * n + j] = v;
    }
  return h;
}

// Orbits of the nonzero numbers below m under a group of multipliers that contains -1.
std::vector<std::vector<int64_t>> orbits_of(int64_t m, const std::set<int64_t>& group) {
  std::vector<std::vector<int64_t>> orbits;
  std::set<int64_t> seen;
  for (int64_t x = 1; x < m; ++x) {
    if (seen.contains(x)) continue;
    std::set<int64_t> orbit;
    for (const int64_t g : group) orbit.insert(x * g % m);
    seen.insert(orbit.begin(), orbit.end());
    orbits.emplace_back(orbit.begin(), orbit.end());
  }
  return orbits;
}

std::set<int64_t> group_of(int64_t m, int64_t generator) {
  std::set<int64_t> group;
  for (int64_t x = 1; group.insert(x).second; x = x * generator % m) group.insert((m - x) % m);
  for (const int64_t x : std::vector<int64_t>(group.begin(), group.end())) group.insert((m - x) % m);
  return group;
}

// Four symmetric sequences of signs whose periodic autocorrelations add up to zero; empty if there are none among those
// that are invariant under the group.
std::vector<std::vector<int>> four_sequences(int64_t m, const std::set<int64_t>& group) {
  const auto orbits = orbits_of(m, group);
  if (std::ssize(orbits) > kMostOrbits) return {};
  std::vector<std::vector<int>> sequences, correlations;
  for (uint32_t set = 0; set < (1U << orbits.size()); ++set) {
    std::vector<int> s(m, 1);
    for (size_t o = 0; o < orbits.size(); ++o)
      for (const int64_t x : orbits[o]) s[x] = (set >> o & 1U) != 0 ? -1 : 1;
    std::vector<int> r;
    for (const auto& orbit : orbits) {
      int sum = 0;
      for (int64_t i = 0; i < m; ++i) sum += s[i] * s[(i + orbit[0]) % m];
      r.push_back(sum);
    }
    sequences.push_back(std::move(s));
    correlations.push_back(std::move(r));
  }
  // Meet in the middle: sums of two, matched with sums of two others.
  std::map<std::vector<int>, std::pair<size_t, size_t>> pairs;
  for (size_t a = 0; a < sequences.size(); ++a)
    for (size_t b = a; b < sequences.size(); ++b) {
      std::vector<int> sum = correlations[a], need;
      for (size_t o = 0; o < sum.size(); ++o) sum[o] += correlations[b][o];
      for (const int x : sum) need.push_back(-x);
      pairs.try_emplace(std::move(sum), a, b);
      if (const auto other = pairs.find(need); other != pairs.end())
        return {sequences[a], sequences[b], sequences[other->second.first], sequences[other->second.second]};
    }
  return {};
}

// Order 4 m, m odd: the four sequences as circulant blocks in a quaternion arrangement.
std::optional<SignMatrix> williamson(int64_t m) {
  std::set<std::set<int64_t>> groups;
  for (int64_t g = 1; g < m; ++g)
    if (std::gcd(g, m) == 1) groups.insert(group_of(m, g));
  std::vector<std::set<int64_t>> by_size(groups.begin(), groups.end());
  std::stable_sort(by_size.begin(), by_size.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  for (const auto& group : by_size) {
    const auto s = four_sequences(m, group);
    if (s.empty()) continue;
    constexpr int kBlock[4][4] = {{0, 1, 2, 3}, {1, 0, 3, 2}, {2, 3, 0, 1}, {3, 2, 1, 0}};
    constexpr int kSign[4][4] = {{1, 1, 1, 1}, {-1, 1, -1, 1}, {-1, 1, 1, -1}, {-1, -1, 1, 1}};
    SignMatrix h = empty(4 * m);
    for (int64_t i = 0; i < 4 * m; ++i)
      for (int64_t j = 0; j < 4 * m; ++j) {
        const int64_t a = i / m, b = j / m, step = ((j - i) % m + m) % m;
        h.values[i * 4 * m + j] = kSign[a][b] * s[kBlock[a][b]][step];
      }
    return h;
  }
  return std::nullopt;
}

enum class Construction { none, power, first, second, four };
Construction way_to(int64_t n) {
  if (n > 0 && (n & (n - 1)) == 0) return Construction::power;
  if (n % 4 != 0 || n > kMostPaley) return Construction::none;
  if (is_prime(n - 1)) return Construction::first;
  if (is_prime(n / 2 - 1) && (n / 2 - 1) % 4 == 1) return Construction::second;
  return n / 4 % 2 == 1 && n / 4 <= kMostWilliamson ? Construction::four : Construction::none;
}

std::optional<SignMatrix> construct(int64_t n) {
  switch (way_to(n)) {
    case Construction::first:
      return paley_one(n - 1);
    case Construction::second:
      return paley_two(n / 2 - 1);
    case Construction::four:
      return williamson(n / 4);
    default:
      return std::nullopt;
  }
}

std::vector<SignMatrix> find(int64_t n) {
  std::vector<SignMatrix> factors;
  if (n < 1) return factors;
  int64_t odd = n, power = 1;
  for (; odd % 2 == 0; odd /= 2) power *= 2;
  if (odd > 1) {
    // The smallest multiple that can be constructed leaves the largest power of two.
    int64_t k = odd * 4;
    for (; k <= n; k *= 2)
      if (auto h = construct(k)) {
        factors.push_back(*std::move(h));
        break;
      }
    if (factors.empty()) return factors;
    power = n / k;
  }
  for (; power > kWidestPower; power /= kWidestPower) factors.push_back(sylvester(kWidestPower));
  if (power > 1 || factors.empty()) factors.push_back(sylvester(power));
  return factors;
}

}  // namespace

bool has_hadamard(int64_t n) {
  return !find(n).empty();
}

std::vector<SignMatrix> hadamard_factors(int64_t n) {
  std::vector<SignMatrix> factors = find(n);
  if (factors.empty()) throw user_error("no Hadamard matrix of order {} is available", n);
  return factors;
}

void multiply_hadamard(std::span<double> row, std::span<const SignMatrix> factors, bool transposed) {
  int64_t inner = std::ssize(row), n = 1;
  std::vector<double> line;
  for (const SignMatrix& f : factors) {
    n *= f.n;
    LUMEN_CHECK(inner % f.n == 0);
    const int64_t block = inner;
    inner /= f.n;
    line.resize(f.n);
    for (int64_t start = 0; start < std::ssize(row); start += block)
      for (int64_t i = 0; i < inner; ++i) {
        for (int64_t p = 0; p < f.n; ++p) {
          double sum = 0;
          for (int64_t q = 0; q < f.n; ++q) sum += row[start + q * inner + i] * (transposed ? f.at(p, q) : f.at(q, p));
          line[p] = sum;
        }
        for (int64_t p = 0; p < f.n; ++p) row[start + p * inner + i] = line[p];
      }
  }
  LUMEN_CHECK(inner == 1);
  for (double& x : row) x /= std::sqrt(n);
}

}  // namespace lumen::graph
