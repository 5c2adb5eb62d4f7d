// The interface from the passes to synthesis: groups of nodes that become kernels, and the storage of every value.
#pragma once

#include "graph/ir/graph.h"

namespace lumen::graph {

// Distance in nodes between two uses of a value, about two layers. Beyond it, recomputing is better than keeping.
inline constexpr ValueId kFar = 200;

// A graph with numeric dims, partitioned into groups, each of which becomes one kernel (synthesis may need a few
// steps).
//
// THE GROUP CONTRACT between the passes of this folder and synthesis; tests/graph/fuse_test.cpp evaluates plans group
// by group and checks it.
//
// 1. Memory. A value is in memory when it is a graph input, a constant of several numbers (not a splat), or in some
//    group's `results`. `inputs` are the values in memory a group reads, `results` those it writes; every value in
//    memory is row-major and dense (formats: one blob). Groups run in the order of Plan::groups. Inputs and non-splat
//    constants belong to no group.
// 2. Nodes. `nodes` lists, in graph order, everything the kernel evaluates. Every operand of a node in `nodes` is
//    itself in `nodes` or in `inputs`. Only nodes of loads may be listed in several groups; every other node is in
//    exactly one.
// 3. Loads. A load is a chain of views (reshape, permute, broadcast, slice, windows) over a source; a source is
//      a value in memory | a cast out of a format of a value in memory | a splat constant | an iota with at most one
//      axis above 1.
//    The nodes of the chain, the cast, the constant and the iota are listed in `nodes`. Loads are read with
//    affine_access (access.h): element [i..] of the load is element offset + sum i[d] * strides[d] of the source. Views
//    are never applied to values a kernel computes, and there are no casts out of a format except directly on a value
//    in memory. A load may also be the plain value in memory, with no node at all. affine_access succeeds for every
//    load in a group.
// 4. Compute nodes are all other nodes (map, random, contract, reduce, gather, ...). Their operands are loads or
//    compute nodes of the same group. `random` is a map: random_formula(salt) of (the seed, the element's number)
//    (ir/random.h).
// 5. Shapes:
//    map     only map and random nodes, all of one shape S (the shape of every result); operands broadcast to S as in a
//            map. One or several results. root == -1. A result may be an `update` without starts whose value is such a
//            map: it is then written straight into the state's storage. In that case the old state is read only at the
//            element being written (its loads have no view), so writing in place is safe.
//    reduce  F = shape of the root's operand, A = the root's axes, R = F with A set to 1. Contains one or several
//            reduce nodes, each from F to R with exactly the axes A (each with its own sum, max or min), and map /
//            random nodes whose shape is F or R. Operands of maps broadcast to the map's shape; a value of shape R
//            broadcasts into F. root = the first reduce. When a result has shape F, or a map of shape F uses (directly
//            or indirectly) the result of a reduce, the group is a row kernel: A are the trailing axes of F (ignoring
//            axes of extent 1), so that a kernel may hold one row after another, and there are at least 8 rows or a row
//            has at most 65536 elements. Otherwise all results have shape R and every F-shaped map only feeds reduces:
//            any axes, any size.
//    dot     exactly one contract (the root), whose operands are loads, then an epilogue of maps of the contract's
//            result shape (other operands: loads that broadcast to it; a mask made of iotas and single numbers may be a
//            map that does not read the contract). One result: the last node. A computed value is the contract's first
//            operand, a parameter or state its second. Every letter absent from the result occurs in both operands; no
//            letter repeats within an operand. An operand may be a chain of views of a pad in the group: the zero
//            padding of an image of 16-bit floats that windows read. The pad puts no zeros between elements, has no
//            other reader, and its operand is a load. A contract's group may encode: then its results are casts of maps
//            of its shape into formats of one byte for each number (byte_cast in match/codes.h), in row-major order and
//            transposed, whose fields are supplied by loads; extremes of all numbers of such maps (as in codes, below);
//            and at most one map or the contract itself. The root may be a contract_gather or a contract_scatter
//            instead: then the index, a load as well, is the third operand, and of a contract_scatter the second
//            operand has the letter of the result's last axis.
//    attend  root = s0 = contract(q, k), then maps of its shape S ending in the scores s (scale, mask: other operands
//            are loads), then m = reduce max(s) over the last axis, e = exp(s - m), l = reduce sum(e) over the last
//            axis, p = e / l, and the last node o = contract(p, v), a result (exp(s - m) and the division are maps of
//            exactly that meaning; each may be spread over several maps, so match structurally: s = operand of the max,
//            o = last node). q, k, v are loads. The axis of m and l is the letter summed in o; no letter of S but that
//            one is absent from o. m and l may be results, too. Where the only reader of o is a map that rounds it to a
//            float of 16 bits, that map is the last node and the result instead. k and v may instead be views of a
//            gather in the group (gathered_access in access.h) that has no other reader and whose table and index are
//            loads: paged KV caches.
//    attend_gradient  two contracts of one shape S, of rows (any number of axes) and keys (the last axis of S): each
//                     has one operand that varies along keys and not along rows, and one the other way round, and sums
//                     one letter; maps of shape S over them and loads; then contracts of such maps, each with a load:
//                     either over the keys, with another operand that varies along keys and not along rows, or over all
//                     row axes, with another operand that does not vary along keys. Those are the results. All numbers
//                     are f32.
//    move    one root, which is the one result and the last node; all its operands are loads:
//              gather, scatter_add (the result is zeroed first), concat, pad,
//              update (writes value at starts into the state's storage; `value` never overlaps the state),
//              cast into a format (encode; further operands supply fields).
//            codes: a cast into a format of one byte for each number may share its group with the map it reads, and
//            with the cast of that map's values as a transposed matrix ([n, m] where the map is [m, n]), or that
//            transposed cast may replace it; the map has no other reader. root = the first cast; the casts are results.
//            Fields above the element level are supplied, or, for tiles that squares of the matrix contain whole
//            (fitted_square in match/codes.h), found by the kernel. The group may also contain maps (and random) of the
//            map's shape that the map reads and only the group uses. Where fields are supplied, the group may find one
//            extreme of all numbers of a value of that shape: an optional map of it, an optional reduction (max or min)
//            to rows, and one to a single number, which is another result.
// 6. A load that must be in memory (a result of the graph that is a view; a reshape that affine_access cannot express)
//    is copied by a `map` whose formula returns its input; copy_loads adds these to the graph. Views and casts out of
//    formats are never results.
// 7. Results that are `update` nodes are stored in the state input (MemoryPlan: external, owner = the input).
enum class KernelShape : uint8_t { map, reduce, dot, attend, attend_gradient, move };
struct Group {
  KernelShape shape = KernelShape::map;
  std::vector<ValueId> nodes;    // evaluated by the kernel, in graph order
  std::vector<ValueId> inputs;   // values read from memory, each once, in order of first use
  std::vector<ValueId> results;  // values written to memory, in graph order
  ValueId root = -1;             // the contract, reduce or move the group is built around; -1 for pure maps
  int beside = 0;  // number of like groups directly before it that may run concurrently; memory is planned for that
};
struct Plan {
  Graph graph;
  std::vector<Group> groups;  // in execution order; inputs and constants belong to no group
};
// The node that errors of a group refer to: one that checks its indices, else its root, else its last result.
ValueId subject(const Graph& g, const Group& group);
// A constant's numbers in the bytes of its element type.
std::vector<uint8_t> constant_bytes(const Node& node);

// The storage of every value of a plan.
struct Slot {
  enum class Where : uint8_t { none, external, arena } where = Where::none;  // none: fused away or folded
  int64_t offset = 0;                                                        // arena
  int64_t bytes = 0;
  ValueId owner = -1;  // external: the input whose storage this value shares (updates), or itself
};
struct MemoryPlan {
  std::vector<Slot> slots;  // by ValueId
  int64_t arena_bytes = 0;
};

// The input of code generation: a plan and its memory.
struct Pipeline {
  Plan plan;
  MemoryPlan memory;
};

}  // namespace lumen::graph
