// The passes from a graph as its author wrote it to one whose nodes can be grouped, one file and function each.
//
// May include: base, graph/fuse, graph/ir, graph/match, graph/pass/learned, number/facts, number/gradient.
// Offers: at_random.h, learned_scales.h, operand_formats.h.
#pragma once

#include <array>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// inline: calls replaced by their bodies (attention is found by structure later).
void inline_calls(Graph& g);
// simplify: constant folding, common subexpression elimination, dead code elimination, algebraic identities from the
// operator tables, collapsing of reshape/permute/broadcast chains. Exact: bits of results never change.
void simplify(Graph& g);

// assign: assigns formats to values. Inserts casts; training: fake quantization of parameters, activations or
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

// pad_states: rows of the named states become so many numbers long, with zeros at their ends, so that formats with
// blocks hold rows of any length. Results stay. Calls are inlined.
void pad_states(Graph& g, const std::map<std::string, int64_t>& widths);

// The products of a linear layer y = x w: the forward one reads x and w, the one for the gradient of x reads the
// gradient of y and w, the one for the gradient of w reads the gradient of y and x.
enum class ProductKind : uint8_t { forward, input_gradient, weight_gradient };
constexpr int kProductKinds = 3;

// The format of an operand of such a product, by its kind; null: the scalar type of all others. A format with scales is
// fitted at run time, over rows along the summed axis (its blocks and rows run along it). A format of one small float
// has no scale: each tensor is scaled by one number so that its largest value fits.
struct OperandFormats {
  FormatRef activation, weight, gradient;
};

// The operands that use stochastic rounding, with probabilities by distance, instead of rounding to nearest; the random
// numbers are a function of (the seed, operand, element). The seed is the input kProductSeed, with the number of a
// layer appended ("step.products.3") for operands of products with its parameters: equal layers use equal salts with
// their own seeds.
struct RandomRoundings {
  bool activation = false, weight = false, gradient = false;
};
inline constexpr const char* kProductSeed = "step.products";  // u32, rank 0, data

// Inputs of one layer's part of a training step (graph/transform/layers.h): values computed by an earlier layer, which
// depend on data and on parameters, and gradients of the part's outputs. In a graph with arriving gradients, nodes that
// depend on none of them are the forward pass, and the rest the backward pass.
inline constexpr const char* kCarriedIn = "carried.in.";  // + number
inline constexpr const char* kArriving = "arriving.";     // + number
bool is_carried_in(const Node& node);
bool is_arriving(const Node& node);
// By value: depends on an arriving gradient. Empty if there are none.
std::vector<bool> values_of_arriving(const Graph& g);

// round (round_products, below): operands of products with parameters are rounded to a 16-bit float, sums stay f32
// (mixed precision), or are cast through formats. Values kept between products, and products that reductions read
// (logits, and their gradients), then have the scalar type, and so have operands of formats without scales whose
// extents are no multiples of 16.
// The source of an operand's scale. Fitted: the current numbers. Delayed: the largest magnitude of the last `history`
// steps, 1 before there is one. Predicted: a bound on a weight's magnitude that its optimizer maintains. The latter two
// are for formats with one number for the whole tensor, or none (number/facts/facts.h, tensor_scale).
struct ScaleSources {
  FieldSource activation = FieldSource::fitted, weight = FieldSource::fitted, gradient = FieldSource::fitted;
  int64_t history = 16;
};
// States of a step: histories of largest magnitudes, by operand ("layers.0.wq.activation"), [history]; and bounds of
// weights, rank 0. They begin at 0.
inline constexpr const char* kHistoryState = "optimizer.history.";
inline constexpr const char* kLargestState = "optimizer.largest.";

struct ProductType {
  Scalar scalar = Scalar::f32;
  std::array<OperandFormats, kProductKinds> formats = {};
  RandomRoundings random = {};
  ScaleSources sources = {};
  // Both operands of such a product are rotated along the summed axis before they are encoded, in runs of this many
  // numbers (a power of two), by a Hadamard matrix with columns of random signs: the product is the same, outliers are
  // spread. 0: no rotation; there is none either if an operand has no format with scales.
  std::array<int64_t, kProductKinds> rotations = {};
  // The format of an attention's operands, row by row of a head: queries, keys and values; and that of the gradient of
  // its output. Scores and probabilities stay f32. Null: `scalar`.
  FormatRef attention = nullptr, attention_gradient = nullptr;
  // Bytes: a frozen weight whose rounded numbers would take more is read in its stored format, and products round the
  // decoded numbers.
  int64_t most_decoded = std::numeric_limits<int64_t>::max();
  ProductType() = default;
  ProductType(Scalar s) : scalar(s) {}  // NOLINT: implicit conversion is intended
  // All operands in one format.
  ProductType(Scalar s, const FormatRef& f) : scalar(s) { formats.fill({f, f, f}); }
  bool has_formats() const;
};
// Error when the length of rotated runs does not divide the summed extent, or a format's codes do not allow stochastic
// rounding.
void round_products(Graph& g, const ProductType& to);

// Binds symbols to numbers; afterwards all dims are numbers.
Graph bind_symbols(const Graph& g, const Bindings& symbols);

// split_contracts: products take the axes their users reshape them to, so that those become epilogues. Numeric dims.
void split_contracts(Graph& g);

// The following passes turn a graph with numeric dims and without calls into one whose nodes fit into groups (THE GROUP
// CONTRACT in graph/fuse/plan.h). Bits stay.

// separate_attention: later uses of an attention's scores, exponentials and probabilities get copies of them.
void separate_attention(Graph& g);
// repeat_casts: parameters rounded for products are rounded again for distant later products.
void repeat_casts(Graph& g);
// narrow_iotas: an iota has one axis above 1, and is broadcast along the others.
void narrow_iotas(Graph& g);
// clone_masks: maps of iotas, constants and single numbers become part of each map that reads them. Unused ones are
// removed.
void clone_masks(Graph& g);
// convert_casts: a cast between scalars is a map.
void convert_casts(Graph& g);
// separate_fits: scales that are a formula of the largest magnitudes of rows, tiles or the tensor are computed by
// separate nodes, which can fuse with the producer of the numbers; casts into bytes of the same numbers, row-major and
// transposed, read one map of them.
void separate_fits(Graph& g);
// The same if no kernel finds scales in squares of a matrix: those of tiles are reductions, too.
void separate_fits_of_squares(Graph& g);
// copy_loads: values that no kernel can read in place (views that strides cannot express, a state's old value read
// after its update, blocks that do not unroll), and results that would be loads, are copied by maps.
void copy_loads(Graph& g);
// order_operands: a computed value is a product's first operand, weights and cached keys its second.
void order_operands(Graph& g);

}  // namespace lumen::graph
