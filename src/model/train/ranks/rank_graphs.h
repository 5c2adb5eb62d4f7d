// The graphs with which a rank computes what ranks exchange: sums of what others have sent, numbers in a format with
// what that lost kept for the next step, and changes of parameters in a format. Each is of several parameters. Knows no
// devices. Proved by tests/model/train/ranks/rank_graphs_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/graph.h"
#include "model/train/ranks/cuts.h"

namespace lumen::model {

// Inputs and results of these graphs, with a parameter's name behind them.
std::string part_input(int rank, const std::string& parameter);  // of rank `rank`: "part3.wq"
inline constexpr const char* kLost = "lost.";                    // what rounding has lost, f32
inline constexpr const char* kCoded = "coded.";
inline constexpr const char* kMaster = "master.";  // f32 parts of parameters that others hold rounded
inline constexpr const char* kHeld = "held.";

// The format that a parameter's numbers are exchanged in: none where its blocks do not divide the rows, or it is f32.
FormatRef exchanged_in(const Cut& cut, const FormatRef& format);
// Error (usage) when parts of its tensors cannot stand alone, or it has no encoder.
void check_exchange_format(const FormatRef& format, const char* flag);

// gradient.* of this rank's parts become the sum of all ranks' in their order, the states themselves being this rank's
// terms; with `adds` all are inputs, and the states grow by their sum. Parts come in `format`.
graph::Graph sum_graph(const std::vector<const Cut*>& cuts, int rank, int ranks, bool adds, const FormatRef& format);

// coded.* = gradient.* + lost.* in the format, and lost.* what that has lost. Whole parameters.
graph::Graph encode_graph(const std::vector<const Cut*>& cuts, const FormatRef& format);

// coded.* = master.* - held.* in the format, of this rank's parts.
graph::Graph change_graph(const std::vector<const Cut*>& cuts, int rank, const FormatRef& format);
// held.part<r>.* grow by part<r>.*, of all ranks' parts.
graph::Graph follow_graph(const std::vector<const Cut*>& cuts, int ranks, const FormatRef& format);

// coded.* = master.* in the format, of this rank's parts; and held.part<r>.* = part<r>.*, of all ranks' parts.
graph::Graph code_graph(const std::vector<const Cut*>& cuts, int rank, const FormatRef& format);
graph::Graph decode_graph(const std::vector<const Cut*>& cuts, int ranks, const FormatRef& format);

// "squares": the sum of the squares of gradient.* of this rank's parts; and of each, "squares.*".
graph::Graph squares_graph(const std::vector<const Cut*>& cuts, int rank);
// gradient.* of whole parameters become 0.
graph::Graph clear_graph(const std::vector<const Cut*>& cuts);

}  // namespace lumen::model
