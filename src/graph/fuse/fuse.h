// The passes that form groups of a graph's nodes, each of which becomes a kernel, and the memory plan. pipeline.cpp
// lists their order. Groups satisfy the contract in plan.h.
//
// May include: base, graph/ir, graph/match, graph/steps.
// Offers: layer_view.h.
#pragma once

#include "graph/fuse/partition.h"
#include "graph/fuse/plan.h"

namespace lumen::graph {

// attention: an attention is one group, with the gathers of its keys and the map that rounds its output.
void group_attention(Partition& p);
// The gradient of an attention is one group.
void group_attention_gradients(Partition& p);
// epilogues: a product absorbs maps of its shape that follow it.
void group_epilogues(Partition& p);
// windows: a product absorbs the zero padding of an image that only it reads, through windows.
void group_windows(Partition& p);
// codes: casts into formats of bytes absorb the map that only they read.
void group_codes(Partition& p);
// product codes: a product absorbs casts of its result into formats of bytes, maps between them and extremes.
void group_product_codes(Partition& p);
// reductions: a map that only a reduction reads joins it, before its producer can absorb the map and write it to
// memory.
void group_reductions(Partition& p);
// rows: maps, reductions and updates join the producers of their operands, to a fixed point.
void group_rows(Partition& p);
// siblings: groups of one kind that read the same tensor whole are merged, so it is read once.
void group_siblings(Partition& p);
// small: groups of few numbers that read only states, or that only states depend on, are launched together.
void group_small(Partition& p);

// Clusters as groups, in execution order.
std::vector<Group> order_groups(const Partition& p);

// Clusters in an order in which work independent of an exchange with other ranks follows the exchange, so that they
// overlap: mostly products for gradients of weights.
std::vector<int> beside_exchanges(const Partition& p, const std::vector<int>& order);
// The same plan with like, independent groups moved next to each other (Group::beside). Live ranges may grow.
Plan bring_together(Plan plan);
// The first and the last of the groups that may run concurrently with a group; itself if there are no others.
size_t first_beside(const Plan& plan, size_t group);
size_t last_beside(const Plan& plan, size_t group);
// The first group after an exchange that must wait for it: one that reads a received value, or writes a value that is
// sent; the number of groups if there is none.
int end_of_exchange(const Plan& plan, int group);

// memory: values whose live ranges do not overlap share bytes; updates write in place.
MemoryPlan plan_memory(const Plan& plan);

// A live range: bytes that are needed from one group of a plan to another, both included.
struct Life {
  int64_t bytes = 0;
  int first = 0, last = 0;
  int64_t offset = 0;
};
// Gives each live range an offset, so that ranges that intersect in time never overlap in memory; returns the end of
// the last. First fit by decreasing size: each takes the lowest gap. Error (hardware) beyond all addresses.
int64_t place_lives(std::vector<Life>& lives);

}  // namespace lumen::graph
