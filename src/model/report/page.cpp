#include "model/report/page.h"

#include <fmt/format.h>

#include "model/report/chart.h"

namespace lumen::model {
namespace {

constexpr std::string_view kStyle = R"(
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--text:#1c2128;--dim:#667080;--line:#dfe3e8;
--c0:#2563c9;--c1:#d9591c;--c2:#1f8f4e;--c3:#9a4fd0;--c4:#c2293f;--c5:#0e8c9b;--c6:#a07a00;--c7:#64748b}
@media(prefers-color-scheme:dark){:root{--bg:#12151a;--card:#1b2027;--text:#e4e8ee;--dim:#93a0b0;--line:#2f3742;
--c0:#6ea8ff;--c1:#ff9a5c;--c2:#5fd08d;--c3:#c79bf2;--c4:#ff7f8f;--c5:#55cfdd;--c6:#e0c054;--c7:#a3b1c4}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1180px;padding:28px 20px 60px;background:var(--bg);color:var(--text);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Noto Sans KR",sans-serif}
h1{margin:0;font-size:26px;overflow-wrap:anywhere}h2{margin:34px 0 12px;font-size:18px}
.sub{margin:4px 0 20px;color:var(--dim)}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(160px,1fr));gap:12px}
.tile,.card{background:var(--card);border:1px solid var(--line);border-radius:10px}
.tile{padding:12px 14px}.tile span{display:block;color:var(--dim);font-size:12.5px}
.tile b{display:block;font-size:22px;font-weight:600;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:14px}
.card{margin:0;padding:12px 14px 8px;min-width:0}
figcaption{display:flex;flex-wrap:wrap;gap:4px 12px;align-items:baseline;margin-bottom:6px}
small,.none,.legend{color:var(--dim);font-size:12.5px}.legend{display:flex;flex-wrap:wrap;gap:2px 12px;margin-left:auto}
.legend i{display:inline-block;width:14px;height:3px;margin-right:5px;vertical-align:middle;background:var(--c)}
svg{display:block;width:100%;height:auto}svg text{fill:var(--dim);font-size:11.5px}
.y,.across{text-anchor:end}.x{text-anchor:middle}.grid{stroke:var(--line);stroke-width:1}
.axis,.tick{stroke:var(--dim);stroke-width:1}
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}
.c4{--c:var(--c4)}.c5{--c:var(--c5)}.c6{--c:var(--c6)}.c7{--c:var(--c7)}
.line{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round}
.faint{fill:none;stroke:var(--c);stroke-width:1;opacity:.28;stroke-linejoin:round}
.dot{fill:var(--c);stroke:var(--card);stroke-width:1}.hit{fill:transparent}.hit:hover{fill:var(--c)}
.bin{fill:var(--c);opacity:.45}
.map td{padding:3px 8px;border:1px solid var(--card);font-size:12px;white-space:nowrap;
background:color-mix(in srgb,var(--c0) calc(var(--bits)*6%),var(--card))}
.map th,.map td.none{background:none}.map caption,.scroll caption{text-align:left;color:var(--dim);font-size:12.5px}
.gauge{display:block;height:9px;border-radius:3px;background:var(--c);min-width:1px}
.scroll{overflow-x:auto}.scroll td:first-child{overflow-wrap:normal}
table{border-collapse:collapse;min-width:40%;font-variant-numeric:tabular-nums}
th,td{padding:5px 16px 5px 0;border-bottom:1px solid var(--line);text-align:left;vertical-align:top;
overflow-wrap:break-word}
th{color:var(--dim);font-weight:500;font-size:12.5px;white-space:nowrap}.n{text-align:right;white-space:nowrap}
.bar{display:flex;height:18px;margin:2px 0 12px;border-radius:5px;overflow:hidden}
.bar i{display:block;background:var(--c);min-width:1px}
.key{display:inline-block;width:11px;height:11px;margin-right:7px;border-radius:3px;background:var(--c)}
pre{margin:0;padding:12px 14px;overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere;background:var(--card);
border:1px solid var(--line);border-radius:10px;font:13px/1.45 ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace}
details{margin:8px 0}summary{cursor:pointer;color:var(--dim)}
.said{margin:10px 0}.said b{font-weight:600}
footer{margin-top:40px;color:var(--dim);font-size:12.5px}
@media print{body{max-width:none;background:#fff}.card,.tile{break-inside:avoid}.scroll{overflow:visible}
.map td,.bar i,.gauge,.key{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
)";

}  // namespace

std::string bytes_text(double bytes) {
  for (const auto& [unit, name] :
       {std::pair{double{1 << 30}, "GiB"}, {double{1 << 20}, "MiB"}, {double{1 << 10}, "KiB"}})
    if (bytes >= unit) return fmt::format("{:.2f} {}", bytes / unit, name);
  return fmt::format("{:.0f} bytes", bytes);
}

std::string html_page(std::string_view title, std::string_view body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
      "<title>{}</title>\n<style>{}</style></head>\n<body>\n{}</body></html>\n",
      escaped(title), kStyle, body);
}

std::string html_section(std::string_view title, std::string_view body) {
  if (body.empty()) return {};
  return fmt::format("<section><h2>{}</h2>\n{}</section>\n", escaped(title), body);
}

std::string html_table(const Table& table) {
  if (table.rows.empty()) return {};
  const auto cell = [&](const char* tag, size_t column, const std::string& text) {
    return fmt::format("<{0}{1}>{2}</{0}>", tag, column < table.texts ? "" : " class=\"n\"", escaped(text));
  };
  std::string out = "<div class=\"scroll\"><table>";
  if (!table.head.empty()) {
    out += "<tr>";
    for (size_t c = 0; c < table.head.size(); ++c) out += cell("th", c, table.head[c]);
    out += "</tr>\n";
  }
  for (const auto& row : table.rows) {
    out += "<tr>";
    for (size_t c = 0; c < row.size(); ++c) out += cell("td", c, row[c]);
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string text_table(const Table& table) {
  std::vector<size_t> width;
  for (const std::string& head : table.head) width.push_back(head.size());
  for (const auto& row : table.rows)
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  std::string out;
  const auto add = [&](const std::vector<std::string>& row) {
    for (size_t i = 0; i < row.size(); ++i)
      out += (i > 0 ? "  " : "") +
             (i < table.texts ? fmt::format("{:<{}}", row[i], width[i]) : fmt::format("{:>{}}", row[i], width[i]));
    out += '\n';
  };
  add(table.head);
  for (const auto& row : table.rows) add(row);
  return out;
}

std::string html_tiles(const std::vector<Tile>& tiles) {
  std::string out = "<div class=\"tiles\">";
  for (const Tile& t : tiles)
    out += fmt::format("<div class=\"tile\"><span>{}</span><b>{}</b><span>{}</span></div>\n", escaped(t.name),
                       escaped(t.value), escaped(t.remark));
  return out + "</div>\n";
}

std::string html_parts(const std::vector<Part>& parts) {
  double all = 0;
  for (const Part& p : parts) all += p.bytes;
  if (!(all > 0)) return {};
  std::string bar = "<div class=\"bar\">", rows;
  for (size_t i = 0; i < parts.size(); ++i) {
    const double share = 100 * parts[i].bytes / all;
    const std::string size = bytes_text(parts[i].bytes);
    if (parts[i].bytes > 0)
      bar += fmt::format("<i class=\"c{}\" style=\"width:{:.2f}%\" title=\"{}: {}\"></i>", i % 8, share,
                         escaped(parts[i].name), size);
    rows += fmt::format(
        "<tr><td><span class=\"key c{}\"></span>{}</td><td class=\"n\">{}</td><td class=\"n\">{:.1f} %</td></tr>\n",
        i % 8, escaped(parts[i].name), size, share);
  }
  return fmt::format(
      "{}</div>\n<div class=\"scroll\"><table>{}<tr><td>together</td><td class=\"n\">{}</td><td></td></tr>"
      "</table></div>\n",
      bar, rows, bytes_text(all));
}

}  // namespace lumen::model
