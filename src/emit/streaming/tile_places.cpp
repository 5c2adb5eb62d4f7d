// See tile_places.h.
#include "emit/streaming/tile_places.h"

#include <algorithm>

#include "base/check.h"

namespace lumen::emit {

using loop::Instr;
using loop::Op;
using loop::Region;

namespace {

const machine::TileRow* row_of(const machine::Machine& m, const Instr& instr) {
  if (instr.op != Op::inst_) return nullptr;
  const auto found = std::ranges::find(m.tiles, instr.row, &machine::TileRow::row);
  return found == m.tiles.end() ? nullptr : &*found;
}

}  // namespace

TilePlaces::TilePlaces(const loop::Kernel& k, const machine::Machine& m) : machine_(m), kernel_(k) {
  each(k.body, [&](const Instr& instr) { products_ += is_product(instr) ? 1 : 0; });
  if (empty()) return;
  find_buffers(k);
  find_values(k);
  all_ = count(k.body);
  number(k.body, 0, false);
}

template <typename Body>
void TilePlaces::each(const Region& r, const Body& body) const {
  for (const Instr& instr : r.code) {
    body(instr);
    for (const Region& inner : instr.regions) each(inner, body);
  }
}

bool TilePlaces::is_product(const Instr& instr) const {
  return row_of(machine_, instr) != nullptr;
}

// Private memory of exactly a tile's size that holds a product's sum before or after it.
void TilePlaces::find_buffers(const loop::Kernel& k) {
  std::set<loop::BufferId> fit;
  const machine::TileRow& row = machine_.tiles.front();
  const int64_t bytes = int64_t{4} * row.rows * row.columns;
  each(k.body, [&](const Instr& instr) {
    if (instr.op == Op::alloc_ && instr.space == loop::Space::priv && instr.bytes == bytes) fit.insert(instr.buffer);
    if (instr.op == Op::load_ || is_product(instr)) from_[instr.result] = &instr;
  });
  each(k.body, [&](const Instr& instr) {
    if (is_product(instr)) {
      const auto before = from_.find(instr.operands[0]);
      if (before != from_.end() && before->second->op == Op::load_ && fit.contains(before->second->buffer))
        buffers_.insert(before->second->buffer);
    }
    if (instr.op == Op::store_ && fit.contains(instr.buffer)) {
      const auto value = from_.find(instr.operands[0]);
      if (value == from_.end() || !is_product(*value->second)) return;
      buffers_.insert(instr.buffer);
      stored_in_[instr.operands[0]] = instr.buffer;
    }
  });
}

TilePlaces::Place TilePlaces::place_of(const Instr& product) const {
  const auto before = from_.find(product.operands[0]);
  if (before != from_.end() && before->second->op == Op::load_ && buffers_.contains(before->second->buffer))
    return before->second->buffer;
  const auto after = stored_in_.find(product.result);
  return after != stored_in_.end() ? after->second : kernel_.buffer_count + product.result;
}

void TilePlaces::find_values(const loop::Kernel& k) {
  each(k.body, [&](const Instr& instr) {
    if (instr.op == Op::load_ && buffers_.contains(instr.buffer)) values_[instr.result].insert(instr.buffer);
    if (instr.op == Op::store_ && buffers_.contains(instr.buffer)) values_[instr.operands[0]].insert(instr.buffer);
    if (!is_product(instr)) return;
    const Place place = place_of(instr);
    values_[instr.result].insert(place);
    for (const loop::ValueId v : instr.operands) values_[v].insert(place);
    for (const size_t i : {1, 2}) {
      const auto load = from_.find(instr.operands[i]);
      LUMEN_CHECK(load != from_.end() && load->second->op == Op::load_ && load->second->operands.size() == 1,
                  "kernel {}: a factor of an outer product that is no whole vector in memory", kernel_.name);
      factors_.insert(instr.operands[i]);
    }
  });
}

bool TilePlaces::touches(const Instr& instr) const {
  if (instr.op == Op::store_) return values_.contains(instr.operands[0]);
  return (instr.op == Op::load_ || instr.op == Op::inst_ || instr.op == Op::constant_) &&
         values_.contains(instr.result);
}

std::optional<int> TilePlaces::tile_of_buffer(loop::BufferId b) const {
  if (!buffers_.contains(b)) return std::nullopt;
  return tiles_.at(b);
}

int TilePlaces::tile_of_product(const Instr& instr) const {
  return tiles_.at(place_of(instr));
}

// Counts the accesses to each place per instruction, including its regions. Constants generate no code.
TilePlaces::Touched TilePlaces::count(const Region& r) {
  Touched sum;
  std::vector<Touched> own(r.code.size());
  for (size_t i = 0; i < r.code.size(); ++i) {
    const Instr& instr = r.code[i];
    if (instr.op != Op::constant_ && touches(instr))
      for (const Place p : values_.at(instr.op == Op::store_ ? instr.operands[0] : instr.result)) ++own[i][p];
    for (const Region& inner : instr.regions)
      for (const auto& [place, times] : count(inner)) own[i][place] += times;
    for (const auto& [place, times] : own[i]) sum[place] += times;
  }
  touched_[&r] = std::move(own);
  return sum;
}

// Whether one of the instruction's regions contains all accesses to the place.
bool TilePlaces::is_within(const Instr& instr, Place place) const {
  return std::ranges::any_of(instr.regions, [&](const Region& inner) {
    int times = 0;
    for (const Touched& t : touched_.at(&inner))
      if (const auto found = t.find(place); found != t.end()) times += found->second;
    return times == all_.at(place);
  });
}

// The live range of a place is in the innermost region that contains all its accesses, from the first to the last of
// these instructions. Overlapping ranges form one run; places inside a run use other tiles.
void TilePlaces::number(const Region& r, int used, bool inside) {
  const std::vector<Touched>& own = touched_.at(&r);
  struct Life {
    Run run;
    std::vector<Place> places;
  };
  std::vector<Life> lives;
  std::map<Place, Life> mine;
  for (size_t i = 0; i < own.size(); ++i)
    for (const auto& [place, times] : own[i]) {
      if (tiles_.contains(place) || is_within(r.code[i], place)) continue;
      Life& life = mine.try_emplace(place, Life{{i, i}, {place}}).first->second;
      life.run.last = i;
    }
  std::erase_if(mine, [&](const auto& entry) {  // places with accesses outside of this region
    int times = 0;
    for (const Touched& t : own)
      if (const auto found = t.find(entry.first); found != t.end()) times += found->second;
    return times != all_.at(entry.first);
  });
  for (const auto& [place, life] : mine) lives.push_back(life);
  std::ranges::sort(lives, {}, [](const Life& l) { return l.run.first; });
  std::vector<Life> joined;
  for (const Life& life : lives) {
    if (!joined.empty() && life.run.first <= joined.back().run.last) {
      joined.back().run.last = std::max(joined.back().run.last, life.run.last);
      joined.back().places.push_back(life.places[0]);
    } else {
      joined.push_back(life);
    }
  }
  std::vector<int> most(r.code.size(), used);
  for (const Life& life : joined) {
    int next = used;
    for (const Place p : life.places) tiles_[p] = next++;
    LUMEN_CHECK(next <= machine_.tile_registers, "kernel {} holds {} tiles at once", kernel_.name, next);
    for (size_t i = life.run.first; i <= life.run.last; ++i) most[i] = next;
    if (!inside) runs_[&r].push_back(life.run);
  }
  for (size_t i = 0; i < r.code.size(); ++i)
    for (const Region& inner : r.code[i].regions) number(inner, most[i], inside || most[i] > used);
}

const std::vector<TilePlaces::Run>& TilePlaces::runs(const Region& r) const {
  static const std::vector<Run> none;
  const auto found = runs_.find(&r);
  return found == runs_.end() ? none : found->second;
}

}  // namespace lumen::emit
