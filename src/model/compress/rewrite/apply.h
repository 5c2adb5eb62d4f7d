// Sites (graph/equivalence) applied to a model whose weights are f32 (Error naming the weight otherwise: decode it
// first). Every function keeps what the model computes, but for rounding to f32. Proved for all families by
// tests/model/compress/rewrite/families_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/equivalence/equivalence.h"
#include "model/arch/model.h"
#include "model/compress/rewrite/rotation.h"

namespace lumen::model {

// What sites of a model are looked for in. Found anew after untie(), which changes the graph; other rewrites leave it.
graph::Graph rewrite_graph(const Model& model);

// Numbers > 0, one for each that the site has free: x is divided by them (queries are multiplied).
void apply_scales(Model& model, const graph::ScaleSite& site, std::span<const double> s);

// Makes gains of norms 1: columns of the weights that read what they multiply take them. Returns their names; norms
// whose result is read by more than weights, or by a weight that is an embedding, too, keep theirs.
std::vector<std::string> fold_norms(Model& model, std::span<const graph::ScaleSite> sites);

// The output matrix gets numbers of its own where it shares them with the embedding, as folding the last norm and
// rotating need. False when it has its own already.
bool untie(Model& model);

// One rotation for all blocks, or one for each. Error when the site has a reason against it, or gains that are not 1.
void rotate(Model& model, const graph::RotationSite& site, std::span<const Rotation> rotations);

// Columns of these weights (parameters) are multiplied by a Hadamard matrix, and the model's metadata says that what is
// multiplied with them must be, too (model/arch/function.h). Error when no product reads one, or there is no matrix.
void rotate_online(Model& model, const std::vector<std::string>& weights);

// Makes a few channels of a site's activation larger by a factor, and the weights behind smaller: activations as large
// models have them, for tests and measurements of what rounds them. The model computes the same.
void inject_outliers(Model& model, const graph::ScaleSite& site, std::span<const int64_t> channels, double factor);

}  // namespace lumen::model
