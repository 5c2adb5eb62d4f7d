// The passes from a graph as its author wrote it to one whose nodes can be grouped into kernels; pipeline.cpp has their
// order on one page. Each is one file with one function.
//
// May include: base, graph/fuse, graph/ir, graph/match, number/facts.
#pragma once

#include <limits>

#include "graph/ir/graph.h"
#include "graph/pass/recompute.h"

namespace lumen::graph {

// inline: calls replaced by their bodies (attention is found by structure later).
void inline_calls(Graph& g);
// simplify: constants fold, equal pure nodes are shared, dead nodes go, algebraic identities from the operator tables,
// chains of reshape/permute/broadcast collapse. Exact: bits of results never change.
void simplify(Graph& g);

// assign: which format for which value. Inserts casts; training: fake quantization of parameters, activations or
// gradients.
struct FormatAssignment {
  enum class What {
    stored,
    fake
  } what = What::fake;  // stored: the input's element type becomes the format; fake: cast there and back
  std::string value;    // name of an input, or label of a node; * and ? match
  FormatRef format;
  FieldSource source = FieldSource::fitted;
};
void assign_formats(Graph& g, const std::vector<FormatAssignment>& assignments);

// round: operands of products with parameters are rounded to a 16-bit float, sums stay f32 (mixed precision); with
// `code`, a format of one small float, to that, each tensor scaled by one number of its own so that its largest value
// fits. What is kept between products, operands of few multiples of 16, and products that reductions read (logits) then
// have the 16-bit float.
struct ProductType {
  Scalar scalar = Scalar::f32;
  FormatRef code;
  // Bytes: a frozen weight whose rounded numbers would take more is read as it is stored, products round what they
  // decode.
  int64_t most_decoded = std::numeric_limits<int64_t>::max();
  ProductType() = default;
  ProductType(Scalar s, FormatRef f = nullptr) : scalar(s), code(std::move(f)) {}  // NOLINT: a scalar is one
};
void round_products(Graph& g, const ProductType& to);

// Symbols get numbers; afterwards all dims are numbers.
Graph bind_symbols(const Graph& g, const Bindings& symbols);

// split_contracts: products take the axes their users reshape them to, so that those become epilogues. Numeric dims.
void split_contracts(Graph& g);

// What follows makes a graph with numeric dims and without calls one whose nodes groups can hold (THE GROUP CONTRACT in
// graph/fuse/plan.h). Bits stay.

// separate_attention: later uses of an attention's scores, powers and probabilities get copies of them.
void separate_attention(Graph& g);
// repeat_casts: parameters rounded for products are rounded again for those far behind.
void repeat_casts(Graph& g);
// narrow_iotas: an iota has one axis above 1, and is broadcast along the others.
void narrow_iotas(Graph& g);
// clone_masks: maps of iotas, constants and single numbers become part of each map that reads them. What nobody reads
// any more goes.
void clone_masks(Graph& g);
// convert_casts: a cast between scalars is a map.
void convert_casts(Graph& g);
// copy_loads: what no kernel can read where it lies (views that strides cannot express, a state's old value read after
// its update, blocks that do not unroll), and results that would be loads, are copied by maps.
void copy_loads(Graph& g);
// order_operands: what is computed is a product's first operand, weights and cached keys its second.
void order_operands(Graph& g);

}  // namespace lumen::graph
