// Launches written to files, so that another emulator can do the same and compare
// (tests/amd/driver/emulator_reference.py).
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/amd/machine.h"

namespace lumen::amd {

// Each kernel's first launch becomes four files in the folder that LUMEN_STAND_IN_RECORD names: N.object, N.txt (chip,
// symbol, blocks, threads, shared bytes, arguments, then an address and a size for each allocation that an argument
// points into), N.before and N.after (the bytes of these allocations). Without an N.after the launch failed.
class Recorded {
 public:
  Recorded() : folder_(std::getenv("LUMEN_STAND_IN_RECORD") ? std::getenv("LUMEN_STAND_IN_RECORD") : "") {}

  void taken(uint64_t address, uint64_t bytes, void* host) { blocks_[address] = {bytes, host}; }
  void given_back(uint64_t address) { blocks_.erase(address); }

  // False: not recorded.
  bool before(const std::string& image, const std::string& chip, const std::string& symbol, const Launch& launch) {
    if (folder_.empty() || !seen_.insert(symbol).second) return false;
    path_ = folder_ + "/" + std::to_string(seen_.size());
    reached_.clear();
    std::ofstream(path_ + ".object", std::ios::binary) << image;
    std::ofstream said(path_ + ".txt");
    said << chip << "\n"
         << symbol << "\n"
         << launch.blocks << " " << launch.threads << " " << launch.shared_bytes << "\n";
    for (size_t at = 0; at + 8 <= launch.arguments.size(); at += 8) {
      uint64_t argument = 0;
      std::memcpy(&argument, launch.arguments.data() + at, 8);
      said << argument << " ";
      auto block = blocks_.upper_bound(argument);
      if (block != blocks_.begin() && argument - (--block)->first < block->second.bytes)
        reached_[block->first] = block->second;
    }
    said << "\n";
    for (const auto& [address, block] : reached_) said << address << " " << block.bytes << "\n";
    write(".before");
    return true;
  }
  void after() { write(".after"); }

 private:
  struct Block {
    uint64_t bytes = 0;
    const void* host = nullptr;
  };
  void write(const char* end) {
    std::FILE* file = std::fopen((path_ + end).c_str(), "wb");
    bool well = file != nullptr;
    for (const auto& [address, block] : reached_)
      well = well && std::fwrite(block.host, 1, block.bytes, file) == block.bytes;
    if (file && std::fclose(file) != 0) well = false;
    if (!well) std::fprintf(stderr, "stand-in for libamdhip64: cannot write %s%s\n", path_.c_str(), end);
  }
  std::string folder_, path_;
  std::set<std::string> seen_;
  std::map<uint64_t, Block> blocks_, reached_;
};

}  // namespace lumen::amd
