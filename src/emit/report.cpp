// See report.h. Parses assembly text: labels, branches, and the assembler directives of each kernel. Proved by
// tests/emit/gpu_test.cpp, and on kernels of every machine by tests/golden/code_test.cpp.
#include "emit/report.h"

#include <algorithm>
#include <charconv>
#include <map>

namespace lumen::emit {
namespace {

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string_view trimmed(std::string_view line) {
  const size_t first = line.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return line.substr(first, line.find_last_not_of(" \t\r") + 1 - first);
}

// The number after a word, e.g. ".vgpr_count:     24".
std::optional<int64_t> number_after(std::string_view line, std::string_view word) {
  const size_t at = line.find(word);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = trimmed(line.substr(at + word.size()));
  int64_t x = 0;
  const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), x);
  return error == std::errc() && stop != rest.data() ? std::optional(x) : std::nullopt;
}

bool contains(std::string_view line, std::string_view word) {
  return line.find(word) != std::string_view::npos;
}

// A line without its comment.
std::string_view code_of(std::string_view line) {
  for (const char* comment : {" ;", "\t;", "//", " # ", "\t# "}) line = line.substr(0, line.find(comment));
  return trimmed(line);
}

bool is_label(std::string_view line) {
  return !line.empty() && line.back() == ':' && !contains(line, " ") && (contains(line, "BB"));
}
bool is_instruction(std::string_view line) {
  return !line.empty() && line[0] != '.' && line[0] != ';' && line[0] != '/' && line[0] != '{' && line[0] != '}' &&
         line[0] != ')' && line.back() != ':';
}
bool is_matrix(std::string_view line) {
  return contains(line, "v_mfma_") || contains(line, "v_wmma_") || contains(line, "mma.sync") ||
         contains(line, "wgmma.mma_async") || line.starts_with("tdp");
}
bool is_dot(std::string_view line) {
  for (const char* name : {"v_dot4", "dp4a", "vpdpbusd", "vdpbf16ps", "vpmaddubsw", "vpmaddwd", "sdot", "udot", "usdot",
                           "bfdot", "smmla", "usmmla", "bfmmla"})
    if (line.starts_with(name)) return true;
  return line.starts_with("{vex}") && contains(line, "vpdpbusd");
}
bool is_branch(std::string_view line) {
  return contains(line, "bra") || line.starts_with("j") || line.starts_with("b.") || line.starts_with("b\t") ||
         line.starts_with("cb") || line.starts_with("tb");
}

// Finds the loops in a kernel's body: the code between a label and a branch back to it, without inner loops.
void count_loops(const std::vector<std::string_view>& body, KernelReport* out) {
  std::map<std::string_view, size_t> labels;
  std::vector<std::pair<size_t, size_t>> loops;
  for (size_t i = 0; i < body.size(); ++i) {
    const std::string_view line = code_of(body[i]);
    if (is_label(line)) {
      labels[line.substr(0, line.size() - 1)] = i;
      continue;
    }
    if (!is_branch(line) || !is_instruction(line)) continue;
    std::string_view target = line.substr(line.find_last_of(" \t") + 1);
    if (target.ends_with(";")) target.remove_suffix(1);
    if (const auto label = labels.find(target); label != labels.end()) loops.emplace_back(label->second, i);
  }
  bool best_is_innermost = false;
  for (const auto& [first, last] : loops) {
    std::vector<std::pair<size_t, size_t>> inside;
    for (const auto& other : loops)
      if (other != std::pair(first, last) && other.first >= first && other.second <= last) inside.push_back(other);
    KernelReport here;
    for (size_t i = first; i <= last; ++i) {
      if (std::any_of(inside.begin(), inside.end(), [i](const auto& l) { return l.first <= i && i <= l.second; }))
        continue;
      const std::string_view line = code_of(body[i]);
      if (!is_instruction(line) && !is_matrix(line) && !is_dot(line)) continue;  // some begin with braces
      ++here.loop_instructions;
      here.loop_matrix += is_matrix(line);
      here.loop_dots += is_dot(line);
      here.loop_spills += contains(body[i], "Spill") || contains(body[i], "Reload");
    }
    const auto weight = [](const KernelReport& r, bool innermost) {
      return std::tuple(r.loop_matrix, r.loop_dots, innermost, r.loop_instructions);
    };
    if (weight(here, inside.empty()) > weight(*out, best_is_innermost)) {
      best_is_innermost = inside.empty();
      out->loop_instructions = here.loop_instructions;
      out->loop_matrix = here.loop_matrix;
      out->loop_dots = here.loop_dots;
      out->loop_spills = here.loop_spills;
    }
  }
}

void read_amd(const std::vector<std::string_view>& lines, std::map<std::string, KernelReport*>& by_name) {
  // Comments after a kernel's code give its occupancy; the metadata at the end give the rest, with the name in between.
  KernelReport* last = nullptr;
  std::map<std::string, int64_t> entry;
  const auto close = [&](const std::string& name) {
    const auto found = by_name.find(name);
    if (found == by_name.end()) return;
    KernelReport& r = *found->second;
    r.vector_registers = static_cast<int>(entry[".vgpr_count:"]);
    r.scalar_registers = static_cast<int>(entry[".sgpr_count:"]);
    r.accumulators = static_cast<int>(entry[".agpr_count:"]);
    r.vector_spills = static_cast<int>(entry[".vgpr_spill_count:"]);
    r.scalar_spills = static_cast<int>(entry[".sgpr_spill_count:"]);
    r.private_bytes = entry[".private_segment_fixed_size:"];
    r.shared_bytes = entry[".group_segment_fixed_size:"];
  };
  std::string name;
  bool metadata = false;
  for (const std::string_view raw : lines) {
    const std::string_view line = trimmed(raw);
    if (contains(line, ".amdgpu_metadata")) metadata = true;
    if (!metadata) {
      if (const size_t colon = raw.find(':'); colon != std::string_view::npos) {
        const auto found = by_name.find(std::string(raw.substr(0, colon)));
        if (found != by_name.end()) last = found->second;
      }
      if (const auto waves = number_after(line, "; Occupancy:"); waves && last) last->waves = static_cast<int>(*waves);
      continue;
    }
    if (line.starts_with("- .") && !contains(line, ".address_space:") && !contains(line, ".offset:")) {
      if (!name.empty()) close(name);
      name.clear();
      entry.clear();
    }
    for (const char* word : {".vgpr_count:", ".sgpr_count:", ".agpr_count:", ".vgpr_spill_count:", ".sgpr_spill_count:",
                             ".private_segment_fixed_size:", ".group_segment_fixed_size:"})
      if (const auto x = number_after(line, word)) entry[word] = *x;
    if (line.starts_with(".name:")) name = trimmed(line.substr(6));
  }
  if (!name.empty()) close(name);
}

// "[64]" at the end of a declaration.
int64_t bytes_in_brackets(std::string_view line) {
  return number_after(line, "[").value_or(0);
}

}  // namespace

std::vector<KernelReport> report(std::span<const loop::Kernel> kernels, const machine::Machine& target) {
  return report(kernels, target, emit(kernels, target, Output::commented_assembly));
}

std::vector<KernelReport> report(std::span<const loop::Kernel> kernels, const machine::Machine& target,
                                 const std::string& commented_assembly) {
  const bool gpu = target.kind == machine::Kind::gpu, amd = contains(target.triple, "amdgcn"), ptx = gpu && !amd;
  std::vector<KernelReport> out;
  std::map<std::string, KernelReport*> by_name;
  for (const loop::Kernel& k : kernels) {
    out.push_back({});
    out.back().symbol = symbol_name(k);
    if (gpu) out.back().launch = launch_shape(k, target);
  }
  for (KernelReport& r : out) by_name[r.symbol] = &r;
  const std::vector<std::string_view> lines = lines_of(commented_assembly);
  std::vector<std::string_view> body;
  KernelReport* current = nullptr;
  for (const std::string_view raw : lines) {
    const std::string_view line = trimmed(raw);
    KernelReport* begins = nullptr;
    if (!ptx && !raw.empty() && raw[0] != '\t' && raw[0] != ' ') {
      const auto found = by_name.find(std::string(raw.substr(0, raw.find(':'))));
      if (found != by_name.end()) begins = found->second;
    }
    if (ptx && contains(line, ".entry ")) {
      std::string_view name = trimmed(line.substr(line.find(".entry ") + 7));
      const auto found = by_name.find(std::string(name.substr(0, name.find('('))));
      if (found != by_name.end()) begins = found->second;
    }
    if (begins) {
      current = begins;
      body.clear();
    }
    if (ptx && contains(line, ".shared ") && contains(line, "_shared["))
      for (auto& [symbol, r] : by_name)
        if (contains(line, symbol + "_shared[")) r->shared_bytes = bytes_in_brackets(line);
    if (!current) continue;
    if (ptx && contains(line, ".local ") && contains(line, "__local_depot"))
      current->private_bytes = bytes_in_brackets(line);
    if (ptx ? raw == "}" : line.starts_with(".Lfunc_end")) {
      count_loops(body, current);
      current = nullptr;
      continue;
    }
    body.push_back(raw);
  }
  if (amd) read_amd(lines, by_name);
  for (KernelReport& r : out) r.shared_bytes += r.launch.shared_bytes;
  return out;
}

}  // namespace lumen::emit
