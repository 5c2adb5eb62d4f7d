// See row_share.h.
#include "kernel/synth/reduce/row_share.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

namespace lumen::synth {
namespace {

constexpr int64_t kWaveRow = 4;        // elements per lane, at least, for a row to be worth a wave
constexpr int64_t kBlockLanes = 1024;  // at most
constexpr int64_t kMostWays = 4;

constexpr int64_t kHeldVectors = 64;                            // of a lane, unrolled
constexpr int64_t kHeldOfWave = 144;                            // registers, for what several passes need
constexpr int64_t kHeldOfBlock = 72;                            // the same where waves share a row
constexpr int64_t kBlockRegisters = 65536, kOwnRegisters = 40;  // of a lane, in addition to what it holds

constexpr int64_t kWavesOfUnit = 8;  // of a multiprocessor, that hide each other's latency

constexpr int64_t kShortRow = 64;   // vectors of a lane
constexpr int64_t kRowsBeside = 4;  // such rows, of a block, for each wave

int64_t most_held(int waves, const machine::Machine& m) {
  if (waves == 1) return kHeldOfWave;
  return std::min(kHeldOfBlock, kBlockRegisters / (waves * m.wave) - kOwnRegisters);
}

// Rows too short for a wave: some of its lanes take each.
void share_wave(const RowsShape& s, const machine::Machine& m, RowShare& out) {
  constexpr int64_t kVectors = 2;  // of a lane, at least
  for (int lanes = m.wave / 2; lanes > 1; lanes /= 2) {
    const int64_t beside = kRowsBeside * m.wave / lanes;
    if (s.length % (kVectors * s.vector * lanes) != 0 || s.rows % beside != 0) continue;
    out.lanes = lanes;
    out.rows = beside;
    out.ways = s.length >= kMostWays * s.vector * lanes ? kMostWays : kVectors;
    return;
  }
}

// The number of waves that hold so many registers of a row together; 1 if none does.
int waves_for(int64_t registers, int64_t vectors, const machine::Machine& m) {
  for (int waves = 1; waves * m.wave <= kBlockLanes; ++waves)
    if (vectors % waves == 0 && vectors / waves <= kHeldVectors && registers <= waves * most_held(waves, m))
      return waves;
  return 1;
}

}  // namespace

std::string RowShare::text(int wave) const {
  if (lanes == 0) return "";
  std::string out = rows > 1 ? fmt::format(" {} rows", rows) : "";
  if (waves > 1)
    out += fmt::format(" by {} waves of {}", waves, lanes);
  else
    out += fmt::format(" by {} of {}", lanes < wave ? "lanes" : "waves", lanes);
  return out + (held.empty() ? "" : fmt::format(" {} in registers", held.size()));
}

RowShare share_rows(const RowsShape& s, const RowPasses& passes, Split split, const machine::Machine& m) {
  RowShare out;
  if (m.wave <= 1) return out;
  const int64_t step = int64_t{s.vector} * m.wave, vectors = s.length / step;
  if ((split.parts > 1 ? split.part : s.length) < kWaveRow * step) {
    if (!s.packed && split.parts == 1) share_wave(s, m, out);
    return out;
  }
  out.lanes = m.wave;
  if (s.packed) return out;
  out.ways = vectors >= kMostWays * kWaveRow ? kMostWays : 1;
  if (split.parts > 1) return out;
  const bool whole = s.length % step == 0;
  if (s.rows * s.length <= kFewElements) {
    const uint64_t most = std::min(vectors, kBlockLanes / m.wave);
    out.waves = std::bit_floor(most);
  } else if (passes.count() > 1 && whole) {
    const auto all = passes.held(s.length, std::numeric_limits<int64_t>::max());
    out.waves = waves_for(passes.registers(all, s.length / m.wave), vectors, m);
    if (out.waves == 1) out.waves = waves_for(vectors * s.vector, vectors, m);
    // With few rows, multiprocessors have little to do: more waves share each.
    const int64_t most = std::min<int64_t>(kBlockLanes / m.wave, kWavesOfUnit * m.units / std::max<int64_t>(s.rows, 1));
    while (2 * out.waves <= most && vectors % (2 * out.waves) == 0) out.waves *= 2;
  } else if (passes.count() == 1 && vectors <= kShortRow && s.rows % kRowsBeside == 0) {
    out.rows = kRowsBeside;
    out.ways = std::clamp<int64_t>(vectors, 1, kMostWays);
  }
  const int64_t own = vectors / out.waves;  // of a lane
  if (out.waves > 1) out.ways = own >= kMostWays ? kMostWays : 1;
  if (whole && vectors % out.waves == 0 && own <= kHeldVectors)
    out.held = passes.held(own * s.vector, most_held(out.waves, m));
  return out;
}

}  // namespace lumen::synth
