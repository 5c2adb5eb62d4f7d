// The graphs of rank exchanges: sums of received gradients, encoding into a format with error feedback for the next
// step, and changes of parameters in a format. Each covers several parameters. Depends on no devices. Proved by
// tests/model/train/ranks/rank_graphs_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/graph.h"
#include "model/train/ranks/cuts.h"

namespace lumen::model::train {

// Inputs and results of these graphs, followed by a parameter's name.
std::string part_input(int rank, const std::string& parameter);  // of rank `rank`: "part3.wq"
inline constexpr const char* kLost = "lost.";                    // rounding error, f32
inline constexpr const char* kCoded = "coded.";
inline constexpr const char* kMaster = "master.";  // exact f32 parts of parameters that other ranks hold rounded
inline constexpr const char* kHeld = "held.";

// The format of exchanged values; null where its blocks do not divide the rows, or the parameter is f32.
FormatRef exchanged_in(const Cut& cut, const FormatRef& format);
// Error (usage) when the format cannot encode parts of a tensor by themselves, or has no encoder.
void check_exchange_format(const FormatRef& format, const char* flag);

// gradient.* of this rank's parts become the sum over all ranks, in rank order; the states are this rank's terms. With
// `adds` all terms are inputs, and the states grow by their sum. Received parts are in `format`.
graph::Graph sum_graph(const std::vector<const Cut*>& cuts, int rank, int ranks, bool adds, const FormatRef& format);

// coded.* = gradient.* + lost.* in the format; lost.* becomes the rounding error. Whole parameters.
graph::Graph encode_graph(const std::vector<const Cut*>& cuts, const FormatRef& format);

// coded.* = master.* - held.* in the format, for this rank's parts.
graph::Graph change_graph(const std::vector<const Cut*>& cuts, int rank, const FormatRef& format);
// held.part<r>.* += part<r>.*, for all ranks' parts.
graph::Graph follow_graph(const std::vector<const Cut*>& cuts, int ranks, const FormatRef& format);

// coded.* = master.* in the format, for this rank's parts; and held.part<r>.* = part<r>.*, for all ranks' parts.
graph::Graph code_graph(const std::vector<const Cut*>& cuts, int rank, const FormatRef& format);
graph::Graph decode_graph(const std::vector<const Cut*>& cuts, int ranks, const FormatRef& format);

// "squares": the sum of squares of gradient.* over this rank's parts; and "squares.*" for each.
graph::Graph squares_graph(const std::vector<const Cut*>& cuts, int rank);
// gradient.* of whole parameters become 0.
graph::Graph clear_graph(const std::vector<const Cut*>& cuts);

}  // namespace lumen::model::train
