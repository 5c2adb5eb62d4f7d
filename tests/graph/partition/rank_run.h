// Runs a partitioned graph as all of its ranks at once: each evaluates it with its parts of the inputs, in a thread of
// its own, and meets the others in exchanges.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "graph/ir/eval.h"
#include "graph/match/access.h"
#include "graph/partition/partition.h"

namespace lumen::graph {

class Meeting {
 public:
  explicit Meeting(int ranks) : ranks_(ranks), said_(ranks) {}

  std::vector<double> exchange(int rank, const Node& node, const std::vector<double>& mine) {
    std::unique_lock lock(mutex_);
    said_[rank] = mine;
    meet(lock);
    std::vector<double> out;
    for (const std::vector<double>& theirs : said_) {
      const size_t piece = node.attributes.moves == Moves::gather ? theirs.size() : theirs.size() / ranks_;
      const size_t at = node.attributes.moves == Moves::gather ? 0 : piece * rank;
      out.insert(out.end(), theirs.begin() + at, theirs.begin() + at + piece);
    }
    meet(lock);
    return out;
  }

 private:
  void meet(std::unique_lock<std::mutex>& lock) {
    const int round = round_;
    if (++here_ == ranks_) {
      here_ = 0;
      ++round_;
      all_here_.notify_all();
      return;
    }
    all_here_.wait(lock, [&] { return round_ != round; });
  }

  int ranks_, here_ = 0, round_ = 0;
  std::vector<std::vector<double>> said_;
  std::mutex mutex_;
  std::condition_variable all_here_;
};

// Which rank has an element, by its place along the split axis, and where there.
inline std::pair<int, int64_t> dealt(const Split& split, int64_t i, int ranks) {
  int64_t at = 0, own = 0;
  for (const int64_t s : split.sections) {
    if (i < at + s) return {static_cast<int>((i - at) / (s / ranks)), own + (i - at) % (s / ranks)};
    at += s;
    own += s / ranks;
  }
  return {0, 0};
}

inline Tensor part_of(const Tensor& whole, const Split& split, int ranks, int rank) {
  Tensor out{{local_shape(whole.type.shape, split, ranks), whole.type.element}, {}, {}};
  const std::vector<int64_t> extents = extents_of(whole.type.shape);
  int64_t inner = 1;
  for (size_t d = split.axis + 1; d < extents.size(); ++d) inner *= extents[d];
  for (size_t k = 0; k < whole.values.size(); ++k)
    if (dealt(split, static_cast<int64_t>(k) / inner % extents[split.axis], ranks).first == rank)
      out.values.push_back(whole.values[k]);  // chunks of sections keep their order
  return out;
}

struct RankResults {
  std::vector<Tensor> results;
  std::map<std::string, Tensor> states;
};

// By rank. `inputs`: whole ones.
inline std::vector<RankResults> run_ranks(const Graph& g, const TensorSplit& partition,
                                          const std::map<std::string, Tensor>& inputs, bool wide = false) {
  Meeting meeting(partition.ranks);
  std::vector<RankResults> out(partition.ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < partition.ranks; ++r)
    threads.emplace_back([&, r] {
      std::map<std::string, Tensor> own = inputs;
      for (const auto& [name, split] : partition.inputs)
        if (own.contains(name)) own[name] = part_of(own[name], split, partition.ranks, r);
      own[kTensorRank] = {{{}, {Scalar::i32, nullptr}}, {static_cast<double>(r)}, {}};
      EvalOptions options;
      options.wide = wide;
      options.exchange = [&](const Node& node, const Tensor& mine) {
        return Tensor{{}, meeting.exchange(r, node, mine.values), {}};
      };
      out[r].results = eval(g, own, options, &out[r].states);
    });
  for (std::thread& t : threads) t.join();
  return out;
}

}  // namespace lumen::graph
