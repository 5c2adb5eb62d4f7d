// Applies sites (graph/equivalence) to a model whose weights are f32 (Error naming the weight otherwise: decode it
// first). Every function preserves what the model computes, up to rounding to f32. Proved for all families by
// tests/model/compress/equivalent_transform/families_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/equivalence/equivalence.h"
#include "model/arch/model.h"
#include "model/compress/equivalent_transform/rotation.h"

namespace lumen::model::compress {

// The graph in which sites are found. Build it again after untie(), which changes the graph; other transformations do
// not.
graph::Graph transform_graph(const arch::Model& model);

// `s` > 0, one for each free channel of the site: x is divided by them (queries are multiplied).
void apply_scales(arch::Model& model, const graph::ScaleSite& site, std::span<const double> s);

// Sets gains of norms to 1 and multiplies the columns of the weights that read them. Returns the norms' names; a norm
// keeps its gain if its result is read by anything but weights, or by a weight that is also an embedding.
std::vector<std::string> fold_norms(arch::Model& model, std::span<const graph::ScaleSite> sites);

// Gives the output matrix its own copy where it is tied to the embedding, as folding the last norm and rotating need.
// False when it is not tied.
bool untie(arch::Model& model);

// One rotation for all blocks, or one for each. Error when the site has a reason against it, or gains other than 1.
void rotate(arch::Model& model, const graph::RotationSite& site, std::span<const Rotation> rotations);

// Multiplies columns of these weights (parameters) by a Hadamard matrix, and records in the model's metadata that their
// inputs need the same (model/arch/function.h). Error when no product reads one, or there is no such matrix.
void rotate_online(arch::Model& model, const std::vector<std::string>& weights);

// Multiplies a few channels of a site's activation by a factor, and divides the following weights: outliers as in large
// models, for tests and measurements of activation rounding. The model computes the same.
void inject_outliers(arch::Model& model, const graph::ScaleSite& site, std::span<const int64_t> channels,
                     double factor);

}  // namespace lumen::model::compress
