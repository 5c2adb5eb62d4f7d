// Reverse-mode gradients as a transform on the graph: one rule per operator (rules.cpp), no tape.
#pragma once

#include "graph/ir/graph.h"

namespace lumen::graph {

// Appends the gradient of the rank-0 value `loss` with respect to each of `with_respect_to` to `g`; returns the
// gradient values, same shapes, element f32 (a parameter stored in a format gets the gradient of its decoded value).
// Calls are inlined before they are differentiated. Values that do not influence the loss get zero constants.
std::vector<ValueId> differentiate(Graph& g, ValueId loss, const std::vector<ValueId>& with_respect_to);

// The same for a loss that ends in a wide product over many rows (logits) and a few numbers of each row: if that
// product takes more than `most_bytes`, it and the nodes after it are computed and differentiated in chunks of rows, so
// that only a chunk is ever stored; twice if the loss mixes rows (preferences). Other products of that width that are
// combined with the same rows are chunked alike. `loss`, and the values `beside` it, which come before it in the graph,
// are replaced by new values to read instead. Numeric dims; else, and when there is no such product, this is
// differentiate.
std::vector<ValueId> differentiate_by_rows(Graph& g, ValueId& loss, const std::vector<ValueId>& with_respect_to,
                                           int64_t most_bytes = int64_t{256} << 20,
                                           std::vector<ValueId>* beside = nullptr);

// differentiate_by_rows of a graph's first result, its loss, with its other results, metrics, as `beside`. They stay
// the results; the first is named "loss".
std::vector<ValueId> gradients_of_loss(Graph& g, const std::vector<ValueId>& with_respect_to, int64_t most_bytes);

// The results of a graph without gradients, its wide product computed in chunks of rows in the same way. Numeric dims;
// else, and when there is no such product, the graph is unchanged.
void compute_by_rows(Graph& g, int64_t most_bytes = int64_t{256} << 20);

}  // namespace lumen::graph
