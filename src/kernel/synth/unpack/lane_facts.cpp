#include "kernel/synth/unpack/lane_facts.h"

#include <algorithm>

namespace lumen::synth {
namespace {

using Statements = std::vector<RoutineStmt>;

bool is_integer(const RoutineExpr& e, int64_t value) {
  return e.kind == RoutineExpr::Kind::constant && e.integer == value;
}

// Whether statements that run together write each entry of an array before they read it. Entries that they do not write
// hold what earlier statements left.
class WrittenFirst {
 public:
  WrittenFirst(int array, int64_t extent) : array_(array), extent_(extent) {}

  bool holds(const Statements& body) {
    State none;
    return statements(body, none);
  }

 private:
  struct State {
    bool whole = false;  // all entries are written
    int entry = -1;      // the entry at this counter is written
  };

  bool may_read(const RoutineExpr& e, const State& s) const {
    if (!std::ranges::all_of(e.args, [&](const RoutineExpr& a) { return may_read(a, s); })) return false;
    if (e.kind != RoutineExpr::Kind::element || e.slot != array_ || s.whole) return true;
    return e.args[0].kind == RoutineExpr::Kind::variable && e.args[0].slot == s.entry;
  }

  bool statements(const Statements& body, State& state) {
    return std::ranges::all_of(body, [&](const RoutineStmt& s) { return statement(s, state); });
  }

  bool statement(const RoutineStmt& s, State& state) {
    using Kind = RoutineStmt::Kind;
    for (const RoutineExpr* e : {&s.value, &s.index, &s.from, &s.to})
      if (!may_read(*e, state)) return false;
    switch (s.kind) {
      case Kind::set_element:
        if (s.slot == array_ && s.index.kind == RoutineExpr::Kind::variable) state.entry = s.index.slot;
        return true;
      case Kind::loop: {
        const bool runs = is_integer(s.from, 0) && s.to.kind == RoutineExpr::Kind::constant && s.to.integer > 0;
        State inside = state;
        if (!statements(s.body, inside)) return false;
        if (!runs) return true;
        state.whole |= inside.whole || (inside.entry == s.slot && s.step == 1 && s.to.integer == extent_);
        return true;
      }
      case Kind::branch: {
        State one = state, other = state;
        return statements(s.body, one) && statements(s.otherwise, other);
      }
      default:
        return true;
    }
  }

  const int array_;
  const int64_t extent_;
};

// One pass over a routine, given which variables are assumed to be uniform. Statements are in regions: a divergent
// branch opens one for each of its sides.
class Look {
 public:
  Look(const Routine& r, const std::vector<bool>& uniform) : routine_(r), uniform_(uniform) {
    regions_.push_back({0, 0, &r.body});
    seen_.resize(uniform.size(), kNowhere);
    written_.resize(uniform.size());
    differs_.resize(uniform.size());
    statements(r.body, 0);
    if (r.has_result) see(r.result, 0);
  }

  // Whether a variable assumed to be uniform is: lanes that do not set it never read it.
  bool stays_uniform(size_t slot) const {
    return !differs_[slot] && std::ranges::all_of(written_[slot], [&](int region) { return region == seen_[slot]; });
  }

  int depth(size_t slot) const {
    if (seen_[slot] == kNowhere) return 0;
    const Region& region = regions_[seen_[slot]];
    const int64_t extent = routine_.variables[slot].extent;
    // A scalar is set where it is declared. An entry of an array that is read before it is written is zero, or what the
    // same lane left there.
    return extent == 0 || WrittenFirst(slot, extent).holds(*region.body) ? region.depth : 0;
  }

 private:
  static constexpr int kNowhere = -1;

  struct Region {
    int around = 0, depth = 0;
    const Statements* body = nullptr;
  };

  // The innermost region that contains both: a region has a greater number than the one around it.
  int common(int a, int b) const {
    while (a != b) (a > b ? a : b) = regions_[std::max(a, b)].around;
    return a;
  }

  void see(int slot, int region) { seen_[slot] = seen_[slot] == kNowhere ? region : common(seen_[slot], region); }

  void see(const RoutineExpr& e, int region) {
    if (e.kind == RoutineExpr::Kind::variable || e.kind == RoutineExpr::Kind::element) see(e.slot, region);
    for (const RoutineExpr& a : e.args) see(a, region);
  }

  void write(int slot, int region) {
    see(slot, region);
    written_[slot].push_back(region);
  }

  void side(const Statements& body, bool together, int region) {
    if (together) return statements(body, region);
    const int own = std::ssize(regions_);
    regions_.push_back({region, regions_[region].depth + 1, &body});
    statements(body, own);
  }

  void statements(const Statements& body, int region) {
    for (const RoutineStmt& s : body) statement(s, region);
  }

  void statement(const RoutineStmt& s, int region) {
    using Kind = RoutineStmt::Kind;
    for (const RoutineExpr* e : {&s.value, &s.index, &s.from, &s.to}) see(*e, region);
    switch (s.kind) {
      case Kind::set:
        if (!is_uniform(s.value, uniform_)) differs_[s.slot] = true;
        return write(s.slot, region);
      case Kind::set_element:
        return write(s.slot, region);
      case Kind::set_field:
        return;
      case Kind::loop:
        write(s.slot, region);
        return statements(s.body, region);
      case Kind::branch: {
        const bool together = is_uniform(s.value, uniform_);
        side(s.body, together, region);
        return side(s.otherwise, together, region);
      }
    }
  }

  const Routine& routine_;
  const std::vector<bool>& uniform_;
  std::vector<Region> regions_;
  std::vector<int> seen_;                  // by slot: the innermost region that contains all uses
  std::vector<std::vector<int>> written_;  // by slot: regions
  std::vector<bool> differs_;              // by slot: set to divergent values
};

void note_assigned(const Statements& body, std::vector<bool>& assigned) {
  for (const RoutineStmt& s : body) {
    if (s.kind == RoutineStmt::Kind::loop || s.kind == RoutineStmt::Kind::set) assigned[s.slot] = true;
    note_assigned(s.body, assigned);
    note_assigned(s.otherwise, assigned);
  }
}

}  // namespace

bool is_uniform(const RoutineExpr& e, const std::vector<bool>& uniform) {
  using Kind = RoutineExpr::Kind;
  if (e.kind == Kind::element || e.kind == Kind::source || e.kind == Kind::field) return false;
  if (e.kind == Kind::variable) return uniform[e.slot];
  return std::ranges::all_of(e.args, [&](const RoutineExpr& a) { return is_uniform(a, uniform); });
}

LaneFacts lane_facts(const Routine& r, const std::vector<int>& given, const std::vector<int>& kept) {
  const auto count = std::ssize(r.variables);
  LaneFacts out{std::vector<bool>(count), std::vector<int>(count)};
  note_assigned(r.body, out.uniform);
  for (int64_t k = 0; k < count; ++k)
    out.uniform[k] = out.uniform[k] && k >= r.parameters && r.variables[k].extent == 0;
  for (const int slot : kept) out.uniform[slot] = false;
  for (const int slot : given) out.uniform[slot] = true;
  // All are assumed to be uniform until one is not; then those that depend on it are checked again.
  for (bool changed = true; changed;) {
    const Look look(r, out.uniform);
    changed = false;
    for (int64_t k = 0; k < count; ++k) {
      if (!out.uniform[k] || look.stays_uniform(k)) continue;
      out.uniform[k] = false;
      changed = true;
    }
  }
  const Look look(r, out.uniform);
  for (int64_t k = r.parameters; k < count; ++k) out.depth[k] = look.depth(k);
  for (const auto& outside : {given, kept})
    for (const int slot : outside) out.depth[slot] = 0;
  return out;
}

}  // namespace lumen::synth
