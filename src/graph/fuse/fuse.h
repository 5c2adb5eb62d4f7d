// The passes that make groups of a graph's nodes, each of which becomes a kernel, and the memory plan; pipeline.cpp has
// their order on one page. The contract that groups keep is in plan.h.
//
// May include: base, graph/ir, graph/match, graph/steps.
// Offers: layer_view.h.
#pragma once

#include "graph/fuse/partition.h"
#include "graph/fuse/plan.h"

namespace lumen::graph {

// attention: an attention is one group, with gathers that find its keys, and the map that rounds its output.
void group_attention(Partition& p);
// The gradient of an attention is one group.
void group_attention_gradients(Partition& p);
// epilogues: a product takes in maps of its shape that follow it.
void group_epilogues(Partition& p);
// windows: a product takes in zeros around an image that it alone reads, through windows.
void group_windows(Partition& p);
// codes: casts into formats of bytes take in the map that they alone read.
void group_codes(Partition& p);
// product codes: a product takes in casts of its result into formats of bytes, maps between them and extremes.
void group_product_codes(Partition& p);
// reductions: a map that a reduction alone reads joins it, before what it reads may take it along and write it.
void group_reductions(Partition& p);
// rows: maps, reductions and updates join what computes their operands, until nothing changes.
void group_rows(Partition& p);
// siblings: groups of one kind that read the same tensor whole read it once.
void group_siblings(Partition& p);
// small: groups of few numbers that read states alone, or that states alone follow, are launched together.
void group_small(Partition& p);

// Clusters as groups, in execution order.
std::vector<Group> order_groups(const Partition& p);

// Clusters in an order in which work that does not wait for an exchange with other ranks stands behind it, so that both
// may go on together: mostly products for gradients of weights.
std::vector<int> beside_exchanges(const Partition& p, const std::vector<int>& order);
// The same plan, but that groups which are alike and do not wait for each other stand side by side (Group::beside).
// Values may live longer for it.
Plan bring_together(Plan plan);
// The first and the last of the groups that may run at one time with a group; itself where it is alone.
size_t first_beside(const Plan& plan, size_t group);
size_t last_beside(const Plan& plan, size_t group);
// The first group behind an exchange that it must have ended before: one that reads what it brings, or writes what it
// sends; the number of groups where there is none.
int end_of_exchange(const Plan& plan, int group);

// memory: values whose lives do not overlap share bytes; updates write in place.
MemoryPlan plan_memory(const Plan& plan);

// Bytes that are needed from one group of a plan to another, both included.
struct Life {
  int64_t bytes = 0;
  int first = 0, last = 0;
  int64_t offset = 0;
};
// Gives each an offset, so that lives which touch never overlap; returns the end of the last. First fit, large ones
// first: each takes the lowest gap. Error (hardware) beyond all addresses.
int64_t place_lives(std::vector<Life>& lives);

}  // namespace lumen::graph
