// How often each wave of a launch executes each instruction of a kernel: what tools/amd_shares.py predicts times of.
//
//   amd_counts CHIP OBJECT NAME BLOCKS THREADS BYTES..
//
// NAME is what the symbol of one kernel of the object begins with, BYTES the size of each buffer that it takes; the
// status behind them is added. All bytes of all buffers are the same, a small number in every float type. Printed:
//   i TEXT..             the instructions, in order
//   w PLACE COUNT ..     what a wave executed, once for all that executed the same; the first of these lines is 0
//   g WAVE ..            a work-group: the line of each of its waves
//   l CYCLES             what all loads from LDS and stores take of it, with lanes that meet in a bank
#include <charconv>
#include <fstream>
#include <iostream>
#include <iterator>

#include "tests/amd/fault.h"
#include "tests/amd/machine.h"

namespace lumen::amd {
namespace {

constexpr uint8_t kFilled = 0x3c;
constexpr uint64_t kMostBytes = uint64_t{1} << 32;  // of all buffers

template <class T>
T number(std::string_view text, T most) {
  T n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n == 0 || n > most)
    fault("'{}' is no number from 1 to {}", text, most);
  return n;
}

std::vector<uint8_t> file_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fault("{} cannot be read", path);
  return {std::istreambuf_iterator<char>(in), {}};
}

LoadedKernel& find_kernel(LoadedObject& object, const std::string& name) {
  LoadedKernel* found = nullptr;
  std::string all;
  for (auto& [symbol, kernel] : object.kernels) {
    all += " " + symbol;
    if (!symbol.starts_with(name)) continue;
    if (found) fault("several kernels begin with {}:{}", name, all);
    found = &kernel;
  }
  if (!found) fault("no kernel begins with {}:{}", name, all);
  return *found;
}

void count(const Chip& chip, const std::vector<std::string>& words) {
  Machine machine(chip);
  const std::vector<uint8_t> file = file_bytes(words[0]);
  const std::unique_ptr<LoadedObject> object = machine.load(file);
  LoadedKernel& kernel = find_kernel(*object, words[1]);
  const auto blocks = number<unsigned>(words[2], 1U << 20), threads = number<unsigned>(words[3], 1024);
  std::vector<std::vector<uint8_t>> buffers;
  std::vector<uint64_t> places;
  uint64_t next = uint64_t{1} << 40, sum = 0;
  const auto put = [&](uint64_t bytes, uint8_t filled) {
    sum += bytes;
    if (sum > kMostBytes) fault("buffers take more than {} bytes", kMostBytes);
    buffers.emplace_back(bytes, filled);
    places.push_back(next);
    machine.memory().add(next, bytes, buffers.back().data(), true);
    next += (bytes / 0x100000 + 2) * 0x100000;
  };
  for (size_t n = 4; n < words.size(); ++n) put(number(words[n], kMostBytes), kFilled);
  put(16, 0);
  Machine::Counts counts;
  machine.count_instructions(&counts);
  machine.count_banks();
  machine.launch(*object, kernel, {blocks, threads, 0, std::as_bytes(std::span(places))});

  std::string out;
  for (const Instruction& i : kernel.instructions) out += "i " + i.text + "\n";
  std::map<std::vector<uint64_t>, size_t> lines;
  const size_t group = counts.size() / blocks;
  for (size_t n = 0; n < counts.size(); ++n) {
    const auto [line, fresh] = lines.try_emplace(counts[n], lines.size());
    if (!fresh) continue;
    out += "w";
    for (size_t k = 0; k < counts[n].size(); ++k)
      if (counts[n][k] > 0) out += fmt::format(" {} {}", k, counts[n][k]);
    out += "\n";
  }
  for (size_t n = 0; n < counts.size(); ++n)
    out += fmt::format("{} {}{}", n % group == 0 ? "g" : "", lines.at(counts[n]), n % group + 1 == group ? "\n" : "");
  std::cout << out << "l " << machine.lds_cycles().all << '\n';
}

}  // namespace
}  // namespace lumen::amd

int main(int count, char** words) {
  const lumen::amd::Chip* chip = count > 5 ? lumen::amd::find_chip(words[1]) : nullptr;
  if (!chip) {
    std::cerr << "amd_counts CHIP OBJECT NAME BLOCKS THREADS BYTES..\n";
    return 2;
  }
  try {
    lumen::amd::count(*chip, {words + 2, words + count});
  } catch (const std::exception& e) {
    std::cerr << "amd_counts: " << e.what() << '\n';
    return 1;
  }
  return 0;
}
