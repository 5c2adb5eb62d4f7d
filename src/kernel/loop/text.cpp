// Prints loop IR in the form text.h describes; parse.cpp is the inverse. Proved by
// tests/kernel/loop/loop_text_test.cpp.
#include "kernel/loop/text.h"

#include <cmath>

#include "base/check.h"
#include "kernel/loop/rules.h"

namespace lumen::loop {
namespace {

bool is_plain(std::string_view name) {
  if (name.empty()) return false;
  for (const char c : name)
    if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') && c != '_' && c != '.')
      return false;
  return true;
}

std::string quote(std::string_view name) {
  if (is_plain(name)) return std::string(name);
  std::string out = "\"";
  for (const char c : name) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string number(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  return fmt::format("{}", x);  // shortest text that reads back as x
}

class Printer {
 public:
  void region(const Region& r, int indent) {
    for (const Instr& instr : r.code) line(instr, indent);
  }

  void line(const Instr& instr, int indent) {
    out += std::string(static_cast<size_t>(indent) * 2, ' ');
    if (instr.result >= 0) out += fmt::format("%{} = ", instr.result);
    if (instr.op == Op::alloc_) out += fmt::format("@{} = ", instr.buffer);
    if (instr.op == Op::op_) {
      out += scalar_op_info(instr.scalar_op).name;
    } else {
      out += op_name(instr.op);
    }
    if (instr.result >= 0) out += " " + print(instr.type);
    attributes(instr, indent);
    out += '\n';
  }

  std::string out;

 private:
  void attributes(const Instr& instr, int indent) {
    switch (instr.op) {
      case Op::constant_:
        return constant(instr);
      case Op::op_:
      case Op::splat_:
        return values(instr, 0);
      case Op::extract_:
      case Op::insert_:
        values(instr, 0);
        out += fmt::format(" lane {}", instr.lane);
        return;
      case Op::shuffle_:
        values(instr, 0);
        out += fmt::format(" [{}]", fmt::join(instr.mask, ", "));
        return;
      case Op::fold_:
        out += fmt::format(" {} %{}", scalar_op_info(instr.scalar_op).name, instr.operands[0]);
        return;
      case Op::load_:
        out += fmt::format(" @{}[%{}] align {}", instr.buffer, instr.operands[0], instr.align);
        if (instr.operands.size() > 1) out += fmt::format(" count %{}", instr.operands[1]);
        return;
      case Op::store_:
        out += fmt::format(" @{}[%{}] %{} align {}", instr.buffer, instr.operands[1], instr.operands[0], instr.align);
        if (instr.operands.size() > 2) out += fmt::format(" count %{}", instr.operands[2]);
        return;
      case Op::gather_:
        out += fmt::format(" @{}[%{}]", instr.buffer, instr.operands[0]);
        return;
      case Op::scatter_:
        out += fmt::format(" @{}[%{}] %{}", instr.buffer, instr.operands[1], instr.operands[0]);
        return;
      case Op::alloc_:
        out += fmt::format(" {} {} bytes align {}", space_name(instr.space), instr.bytes, instr.align);
        return;
      case Op::inst_:
        out += " " + quote(instr.row);
        return values(instr, 0);
      case Op::loop_:
        out += fmt::format(" {} %{} from %{} to %{} step {} {{\n", kind_name(instr.kind), instr.regions[0].counter,
                           instr.operands[0], instr.operands[1], instr.step);
        return close(instr.regions[0], indent);
      case Op::branch_:
        out += fmt::format(" %{} {{\n", instr.operands[0]);
        close(instr.regions[0], indent);
        if (instr.regions[1].code.empty()) return;
        out += " else {\n";
        return close(instr.regions[1], indent);
      case Op::guard_:
        out += fmt::format(" {} %{}, %{}", guard_name(instr.code), instr.operands[0], instr.operands[1]);
        return;
      case Op::wave_shuffle_:
        out += fmt::format(" %{} from %{}", instr.operands[0], instr.operands[1]);
        return;
      case Op::copy_:
        out += fmt::format(" @{}[%{}] from @{}[%{}] {} bytes", instr.buffer, instr.operands[0], instr.from,
                           instr.operands[1], instr.bytes);
        return;
      case Op::product_:
        out += fmt::format(" {} %{}, ", quote(instr.row), instr.operands[0]);
        out += instr.buffer < 0 ? fmt::format("%{}", instr.operands[1])
                                : fmt::format("@{}[%{}]", instr.buffer, instr.operands[1]);
        out += fmt::format(", @{}[%{}]", instr.from, instr.operands[2]);
        return;
      case Op::ready_:
        out += fmt::format(" %{}", instr.operands[0]);
        return;
      case Op::commit_:
        out += fmt::format(" {}", flow_name(instr.flow));
        return;
      case Op::wait_:
        out += fmt::format(" {} {}", flow_name(instr.flow), instr.groups);
        return;
      case Op::barrier_:
      case Op::wave_barrier_:
      case Op::lane_id_:
        return;
    }
  }

  void close(const Region& r, int indent) {
    region(r, indent + 1);
    out += std::string(static_cast<size_t>(indent) * 2, ' ') + "}";
  }

  void values(const Instr& instr, size_t first) {
    for (size_t i = first; i < instr.operands.size(); ++i)
      out += fmt::format("{} %{}", i == first ? "" : ",", instr.operands[i]);
  }

  void constant(const Instr& instr) {
    std::vector<std::string> numbers;
    for (const double x : instr.data) numbers.push_back(number(x));
    for (const int64_t x : instr.integers) numbers.push_back(fmt::format("{}", x));
    out += numbers.size() == 1 ? " " + numbers[0] : fmt::format(" [{}]", fmt::join(numbers, ", "));
  }
};

}  // namespace

std::string print(const Instr& instr) {
  Printer p;
  p.line(instr, 0);
  p.out.pop_back();
  return p.out;
}

std::string print(const Kernel& k) {
  Printer p;
  p.out = "kernel " + quote(k.name) + "(";
  for (size_t i = 0; i < k.params.size(); ++i) {
    const BufferParam& param = k.params[i];
    p.out += fmt::format("{}@{} {}: {} bytes align {}{}{}", i == 0 ? "" : ", ", i, quote(param.name), param.bytes,
                         param.align, param.written ? " written" : "", param.constant ? " constant" : "");
  }
  p.out += k.aliased ? ") aliased {\n" : ") {\n";
  p.region(k.body, 1);
  p.out += "}\n";
  return p.out;
}

std::string print(const Function& f) {
  Printer p;
  p.out = "func " + quote(f.name) + "(";
  for (size_t i = 0; i < f.params.size(); ++i)
    p.out += fmt::format("{}%{}: {}", i == 0 ? "" : ", ", f.params[i], print(f.body.value_types[f.params[i]]));
  p.out += fmt::format(") -> {} {{\n", print(f.body.value_types[f.result]));
  p.region(f.body.body, 1);
  p.out += fmt::format("  return %{}\n}}\n", f.result);
  return p.out;
}

}  // namespace lumen::loop
