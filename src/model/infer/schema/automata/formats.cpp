#include "model/infer/schema/automata/formats.h"

#include <fmt/format.h>

#include <map>

namespace lumen::model::infer {
namespace {

std::map<std::string, std::string> make_formats() {
  std::map<std::string, std::string> out;
  const std::string leap_year = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
  const std::string date =
      "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
      "|02-(?:0[1-9]|1[0-9]|2[0-8]))|" +
      leap_year + "-02-29)";
  const std::string offset = "(?:[Zz]|[-+](?:[01][0-9]|2[0-3]):[0-5][0-9])";
  const std::string part = "(?:\\.[0-9]{1,9})?";
  const std::string time =
      fmt::format("(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]{}{}|23:59:60{}[Zz])", part, offset, part);
  out["date"] = date;
  out["time"] = time;
  out["date-time"] = date + "[Tt]" + time;
  const std::string clock = "(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
  out["duration"] = fmt::format(
      "P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)(?:T{})?|T{})", clock, clock);
  const std::string hex = "[0-9A-Fa-f]";
  out["uuid"] = fmt::format("{0}{{8}}-{0}{{4}}-{0}{{4}}-{0}{{4}}-{0}{{12}}", hex);
  const std::string byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
  const std::string ipv4 = fmt::format("{0}(?:\\.{0}){{3}}", byte);
  out["ipv4"] = ipv4;
  const std::string h = hex + "{1,4}";
  std::string ipv6 = fmt::format(
      "(?:{0}:){{7}}{0}|:(?::{0}){{1,7}}|::|(?:{0}:){{1,7}}:|(?:{0}:){{6}}{1}|:(?::{0}){{0,5}}:{1}", h, ipv4);
  for (int i = 1; i <= 6; ++i) ipv6 += fmt::format("|(?:{0}:){{{1}}}(?::{0}){{1,{2}}}", h, i, 7 - i);
  for (int i = 1; i <= 5; ++i) ipv6 += fmt::format("|(?:{0}:){{{1}}}(?::{0}){{0,{2}}}:{3}", h, i, 5 - i, ipv4);
  out["ipv6"] = ipv6;
  const std::string label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
  const std::string host = fmt::format("{0}(?:\\.{0})*", label);
  out["hostname"] = host;
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
  out["email"] = fmt::format("{0}(?:\\.{0})*@{1}", atom, host);
  const auto add_uris = [&](const std::string& uri, const std::string& reference, const std::string& beyond) {
    const std::string open = "[A-Za-z0-9._~!$&'()*+,;=" + beyond, escaped = "|%" + hex + hex + ")";
    const std::string p = "(?:" + open + ":@-]" + escaped, rest = "(?:" + open + ":@/?-]" + escaped + "*";
    const std::string authority = "(?:(?:" + open + ":-]" + escaped + "*@)?(?:\\[[0-9A-Fa-f:.]+\\]|(?:" + open + "-]" +
                                  escaped + "*)(?::[0-9]*)?";
    const std::string after = fmt::format("(?:/{}*)*", p), tail = fmt::format("(?:\\?{0})?(?:#{0})?", rest);
    const std::string any_path = fmt::format("//{0}{1}|/(?:{2}+{1})?", authority, after, p);
    const std::string whole = fmt::format("[A-Za-z][A-Za-z0-9+.-]*:(?:{}|{}+{})?{}", any_path, p, after, tail);
    const std::string first = "(?:" + open + "@-]" + escaped;  // the first segment has no colon
    out[uri] = whole;
    out[reference] = fmt::format("(?:{}|(?:{}|{}+{})?{})", whole, any_path, first, after, tail);
  };
  add_uris("uri", "uri-reference", "");
  add_uris("iri", "iri-reference", "\\u00a0-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef");
  const std::string pointer = "(?:/(?:[^~/]|~[01])*)*";
  out["json-pointer"] = pointer;
  out["relative-json-pointer"] = "(?:0|[1-9][0-9]{0,15})(?:#|" + pointer + ")";
  for (auto& [name, pattern] : out) pattern = "^(?:" + pattern + ")$";
  return out;
}

}  // namespace

const std::string* format_pattern(const std::string& name) {
  static const std::map<std::string, std::string> formats = make_formats();
  const auto found = formats.find(name);
  return found == formats.end() ? nullptr : &found->second;
}

bool format_is_whole(const std::string& name) {
  return name != "hostname";
}

}  // namespace lumen::model::infer
