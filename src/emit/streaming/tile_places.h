// Tile allocation for a unit of outer products: which values and private buffers of a kernel are tiles, their tile
// numbers, and the runs of instructions that need the unit.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "kernel/loop/loop.h"
#include "kernel/machine/machine.h"

namespace lumen::emit {

class TilePlaces {
 public:
  TilePlaces(const loop::Kernel& k, const machine::Machine& m);

  bool empty() const { return products_ == 0; }
  bool touches(const loop::Instr& instr) const;
  bool is_product(const loop::Instr& instr) const;
  bool is_factor(loop::ValueId v) const { return factors_.contains(v); }
  std::optional<int> tile_of_buffer(loop::BufferId b) const;
  int tile_of_product(const loop::Instr& instr) const;

  // Instructions first .. last of a region that execute together; only the outermost of nested runs.
  struct Run {
    size_t first = 0, last = 0;
  };
  const std::vector<Run>& runs(const loop::Region& r) const;

 private:
  // Values that share one tile: those of a buffer, or of a product without a buffer. Numbered by the buffer, or after
  // all buffers by the product's result.
  using Place = int;
  using Touched = std::map<Place, int>;  // access counts

  template <typename Body>
  void each(const loop::Region& r, const Body& body) const;
  void find_buffers(const loop::Kernel& k);
  void find_values(const loop::Kernel& k);
  Place place_of(const loop::Instr& product) const;
  Touched count(const loop::Region& r);
  bool is_within(const loop::Instr& instr, Place place) const;
  void number(const loop::Region& r, int used, bool inside);

  const machine::Machine& machine_;
  const loop::Kernel& kernel_;
  int products_ = 0;
  std::map<loop::ValueId, const loop::Instr*> from_;   // defining instruction of values, products and loads only
  std::map<loop::ValueId, loop::BufferId> stored_in_;  // of results of products
  std::set<loop::BufferId> buffers_;
  std::map<loop::ValueId, std::set<Place>> values_;
  std::set<loop::ValueId> factors_;
  Touched all_;
  std::map<const loop::Region*, std::vector<Touched>> touched_;  // by instruction
  std::map<Place, int> tiles_;
  std::map<const loop::Region*, std::vector<Run>> runs_;
};

}  // namespace lumen::emit
