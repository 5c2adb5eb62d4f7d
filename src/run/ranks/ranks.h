// Processes that do one thing together, each a rank of so many: on one host or on several, on processors or on GPUs.
// What they say to each other is one operation, exchange(): bytes from every rank to every other. Sums are made of it
// in the order of ranks, so that they have the same bits whatever arrives first and whatever carried it. A rank that is
// lost is noticed by all others within seconds: RankLost, never a wait without end. Proved by
// tests/run/ranks/ranks_test.cpp.
//
// May include: base, base/sealed, run/device, run/device/choose.
// Offers: environment.h, launch.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "run/ranks/transport.h"

namespace lumen::run {

class Device;

// Which rank this process is.
struct RankPlace {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among those on this host
};

class Communicator {
 public:
  // `carrier` moves bytes of this process's memory.
  Communicator(RankPlace place, std::unique_ptr<Transport> carrier);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Those of `members`, ranks of `all` in rising order and this one among them, as ranks 0, 1, .. of their own. What
  // they say to each other goes the way that it does among all, GPUs' memory too. Groups without a common member are
  // not waited for.
  static std::shared_ptr<Communicator> group(std::shared_ptr<Communicator> all, std::vector<int> members);

  const RankPlace& place() const { return place_; }
  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  int local_rank() const { return place_.local_rank; }
  int local_size() const { return place_.local_size; }
  std::string describe() const;  // "4 ranks by shared memory"

  // Whether other threads may exchange, one at a time.
  bool serves_any_thread() const { return !carrier_ || carrier_->serves_any_thread(); }

  // Small things of the processes themselves. Every rank calls the same, in the same order.
  void barrier();
  // What each rank says, by rank.
  std::vector<std::string> all_gather(const std::string& mine);
  // The same for one rank; nothing for the others.
  std::vector<std::string> gather(const std::string& mine, int root);
  void broadcast(std::span<std::byte> bytes, int root);
  // Each number's sum over all ranks, in their order.
  void all_reduce(std::span<double> numbers);

  // Memory of a device from here on: the library of the GPUs' vendor moves it where there is one (`carries` says so),
  // else it goes through this process's memory. `name`: as people say it, "cuda:1".
  void use(Device& device, const std::string& name);
  const std::string& carries() const { return carries_; }
  // `to[r]` goes to rank r, whose `from[this rank]` has pieces of the same sizes. What goes to the rank itself is
  // copied.
  void exchange(const SentPieces& to, const TakenPieces& from);
  // Where GPUs' memory is moved by work of a stream: that stream, and exchange() as its next work, which nobody waits
  // for. Null elsewhere.
  Device::Stream* stream();
  void enqueue(const SentPieces& to, const TakenPieces& from);
  // Behind all launches until now; launches that come do not wait for it until await(ticket). A ticket is below
  // kTickets.
  void begin_between_launches(const SentPieces& to, const TakenPieces& from, size_t ticket);
  void await(size_t ticket);
  static constexpr size_t kTickets = 64;
  static constexpr size_t kFreePoint = kTickets;  // the first of the stream's points that others may mark
  // Whole blocks of all ranks one behind the other; each rank's is in its place already. `bytes[r]`: of rank r's.
  void all_gather(void* blocks, std::span<const int64_t> bytes);
  void broadcast(void* memory, int64_t bytes, int root);
  // parts[r] is this rank's part as rank r has it, `count` numbers; `to` becomes their sum in the order of ranks.
  // Numbers are those of memory that this process reads (GPUs sum by kernels, model/train/ranks).
  void reduce_scatter(const std::vector<std::span<const float>>& numbers, std::span<float> to);
  void all_reduce(std::span<float> numbers);

  // Tells the others why this rank ends; they throw RankLost at once.
  void abort(const std::string& why) noexcept;
  // Error (RankLost) when a rank is gone.
  void check();

  static constexpr int64_t kLongestText = int64_t{1} << 36;  // bytes that a rank may say

 private:
  friend class GroupTransport;
  std::vector<std::string> gather_texts(const std::string& mine, int root);
  void exchange_through_host(const SentPieces& to, const TakenPieces& from);

  RankPlace place_;
  std::unique_ptr<Transport> carrier_, direct_;
  Device* device_ = nullptr;
  std::string carries_;
  std::shared_ptr<Communicator> all_;  // of a group: those it is part of
  std::vector<int> members_;
};

}  // namespace lumen::run
