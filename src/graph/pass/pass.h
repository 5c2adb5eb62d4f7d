// The passes from a graph as its author wrote it to one whose nodes can be grouped, in files of one function each.
//
// May include: base, graph/fuse, graph/ir, graph/match, graph/pass/learned, number/facts, number/gradient.
// Offers: at_random.h, learned_scales.h, operand_formats.h.
#pragma once

#include <array>
#include <limits>

#include "graph/ir/graph.h"

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

// The products of a linear layer y = x w: the forward one reads x and w, that of the gradient of x reads the gradient
// of y and w, that of the gradient of w reads the gradient of y and x.
enum class ProductKind : uint8_t { forward, input_gradient, weight_gradient };
constexpr int kProductKinds = 3;

// What an operand of one of them passes through, by what it is; null: the scalar type of everything else. A format with
// scales is fitted while the graph runs, over rows of what the product sums (its blocks and rows lie along that). A
// format of one small float has no scale: each tensor is scaled by one number so that its largest value fits.
struct OperandFormats {
  FormatRef activation, weight, gradient;
};

// Which operands are rounded up or down at random, as their distances say, rather than to the nearest; what is drawn is
// a function of (the seed, operand, element). The seed is the input kProductSeed, with the number of a layer behind it
// ("step.products.3") for operands of products with its parameters: layers that are alike draw alike from their own.
struct RandomRoundings {
  bool activation = false, weight = false, gradient = false;
};
inline constexpr const char* kProductSeed = "step.products";  // u32, rank 0, data

// Inputs of one layer's part of a training step (graph/transform/layers.h): what a layer before has computed, which
// depends on data and on parameters, and gradients of what the part hands on. In a graph with one of the latter, what
// depends on none of them is of the forward pass, and the rest of the backward pass.
inline constexpr const char* kCarriedIn = "carried.in.";  // + number
inline constexpr const char* kArriving = "arriving.";     // + number
bool is_carried_in(const Node& node);
bool is_arriving(const Node& node);
// By value: depends on a gradient that arrives. Empty where none does.
std::vector<bool> values_of_arriving(const Graph& g);

// round: operands of products with parameters are rounded to a 16-bit float, sums stay f32 (mixed precision), or pass
// through formats. What is kept between products and products that reductions read (logits, and their gradients) have
// the scalar type then, as have operands of formats without scales that are few multiples of 16.
// Where the scale of an operand comes from. Fitted: the numbers at hand. Delayed: the largest magnitude of the last
// `history` steps, 1 before there is one. Predicted: a bound on a weight's magnitude that its optimizer keeps. The
// latter two are for formats with one number for the whole tensor, or none (number/facts/facts.h, tensor_scale).
struct ScaleSources {
  FieldSource activation = FieldSource::fitted, weight = FieldSource::fitted, gradient = FieldSource::fitted;
  int64_t history = 16;
};
// States of a step: what was largest, by operand ("layers.0.wq.activation"), [history]; and bounds of weights, rank 0.
// They begin at 0.
inline constexpr const char* kHistoryState = "optimizer.history.";
inline constexpr const char* kLargestState = "optimizer.largest.";

struct ProductType {
  Scalar scalar = Scalar::f32;
  std::array<OperandFormats, kProductKinds> formats = {};
  RandomRoundings random = {};
  ScaleSources sources = {};
  // Both operands of such a product are rotated along what it sums before they are encoded, runs of so many numbers (a
  // power of two) by a Hadamard matrix with columns of random signs: the product is the same, outliers are spread. 0:
  // none; and none where an operand has no format with scales.
  std::array<int64_t, kProductKinds> rotations = {};
  // What attentions multiply passes through, row by row of a head: queries, keys and values; and the gradient of what
  // they mixed. Scores and probabilities stay f32. Null: `scalar`.
  FormatRef attention = nullptr, attention_gradient = nullptr;
  // Bytes: a frozen weight whose rounded numbers would take more is read as it is stored, products round what they
  // decode.
  int64_t most_decoded = std::numeric_limits<int64_t>::max();
  ProductType() = default;
  ProductType(Scalar s) : scalar(s) {}  // NOLINT: a scalar is one
  // All operands in one format.
  ProductType(Scalar s, const FormatRef& f) : scalar(s) { formats.fill({f, f, f}); }
  bool has_formats() const;
};
// Error when runs that are rotated do not divide what a product sums, or codes of a format are none to round at random
// to.
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
// separate_fits: scales that are a formula of the largest magnitudes of rows, tiles or the tensor are computed by nodes
// of their own, which what computes the numbers can do; casts into bytes of the same numbers, as they lie and
// transposed, read one map of them.
void separate_fits(Graph& g);
// The same where no kernel finds scales in squares of a matrix: those of tiles are reductions, too.
void separate_fits_of_squares(Graph& g);
// copy_loads: what no kernel can read where it lies (views that strides cannot express, a state's old value read after
// its update, blocks that do not unroll), and results that would be loads, are copied by maps.
void copy_loads(Graph& g);
// order_operands: what is computed is a product's first operand, weights and cached keys its second.
void order_operands(Graph& g);

}  // namespace lumen::graph
