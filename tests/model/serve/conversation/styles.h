// Small chat templates in the styles of known model families: which roles they render, and how they treat reasoning.
// All were written for these tests.
#pragma once

#include <map>
#include <string>

#include "model/serve/request.h"

namespace lumen::model::serve {

inline std::string all_letters() {
  std::string out = "\n";
  for (char c = ' '; c < 127; ++c) out += c;
  return out;
}

inline const std::map<std::string, std::string>& chat_styles() {
  static const std::map<std::string, std::string> styles = {
      // Instructions at the beginning and later, no developer; reasoning of the last answer; a variable ends reasoning.
      {"qwen",
       "{%- if tools %}[sys]{% for t in tools %}{{ t | tojson }}{% endfor %}[end]{% endif %}"
       "{%- if messages[0].role == 'system' %}[sys]{{ messages[0].content }}[end]{% endif %}"
       "{%- for m in messages %}{%- if m.role == 'user' or (m.role == 'system' and not loop.first) %}"
       "[{{ m.role }}]{{ m.content }}[end]{%- elif m.role == 'assistant' %}[assistant]"
       "{%- if m.reasoning_content and loop.last %}{{ '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{% endif "
       "%}"
       "{{ m.content }}{%- for c in m.tool_calls or [] %}<call>{\"name\": \"{{ c.function.name }}\", \"arguments\": "
       "{{ c.function.arguments | tojson }}}</call>{% endfor %}[end]{%- elif m.role == 'tool' %}"
       "[user]<result>{{ m.content }}</result>[end]{%- endif %}{%- endfor %}"
       "{%- if add_generation_prompt %}{{ '[assistant]\n' }}"
       "{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
       "{%- endif %}"},
      // The same for reasoning, on one line; results have their own role.
      {"glm",
       "{%- for m in messages %}{%- if m.role == 'user' %}<|user|>{{ m.content }}"
       "{{ '/nothink' if enable_thinking is defined and not enable_thinking else '' }}"
       "{%- elif m.role == 'assistant' %}<|assistant|>{{ '\n<think>' + (m.reasoning_content or '') + '</think>\n' }}"
       "{{ m.content }}{%- for c in m.tool_calls or [] %}<call>{{ c.function.name }}"
       "{% for k, v in c.function.arguments | items %}<k>{{ k }}</k>{{ v }}{% endfor %}</call>{% endfor %}"
       "{%- elif m.role == 'tool' %}<|observation|>{{ m.content }}{%- elif m.role == 'system' %}<|system|>{{ m.content "
       "}}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}<|assistant|>"
       "{{ '\n<think></think>' if enable_thinking is defined and not enable_thinking else '' }}{%- endif %}"},
      // All instructions are collected at the beginning; the prompt opens reasoning, and former reasoning is removed.
      {"deepseek",
       "{%- set ns = namespace(system='') %}{%- for m in messages %}{%- if m.role == 'system' %}"
       "{%- set ns.system = ns.system + m.content %}{%- endif %}{%- endfor %}{{ ns.system }}"
       "{%- for m in messages %}{%- if m.role == 'user' %}<User>{{ m.content }}{%- elif m.role == 'assistant' %}"
       "<Assistant>{{ m.content.split('</think>')[-1] }}<End>{%- endif %}{%- endfor %}"
       "{%- if add_generation_prompt %}{{ '<Assistant><think>\n' }}{%- endif %}"},
      // No instructions, turns alternate, and the assistant has another name.
      {"gemma",
       "{%- if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
       "{%- for m in messages %}{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
       "{{ raise_exception('roles must alternate') }}{%- endif %}"
       "<turn>{{ 'model' if m.role == 'assistant' else m.role }}{{ '\n' + m.content | trim }}</turn>{%- endfor %}"
       "{%- if add_generation_prompt %}{{ '<turn>model\n' }}{%- endif %}"},
      // Instructions at the beginning become part of the last question; later ones are an error.
      {"mistral",
       "{%- if messages[0].role == 'system' %}{%- set system = messages[0].content %}{%- set rest = messages[1:] %}"
       "{%- else %}{%- set system = '' %}{%- set rest = messages %}{%- endif %}"
       "{%- for m in rest %}{%- if m.role == 'user' %}[INST]{% if loop.last and system %}{{ system + '\n\n' }}{% endif "
       "%}"
       "{{ m.content }}[/INST]{%- elif m.role == 'assistant' %}{{ m.content }}</s>{%- else %}"
       "{{ raise_exception('only user and assistant roles') }}{%- endif %}{%- endfor %}"},
      // Every role by its name.
      {"chatml",
       "{%- for m in messages %}<{{ m.role }}>{{ m.content }}<end>{%- endfor %}"
       "{%- if add_generation_prompt %}<assistant>{%- endif %}"},
      // Whoever is neither system nor user is the assistant.
      {"plain",
       "{%- for m in messages %}{%- if m.role == 'system' %}{{ m.content + '\n\n' }}{%- elif m.role == 'user' %}"
       "{{ 'User: ' + m.content + '\n' }}{%- else %}{{ 'Assistant: ' + m.content + '\n' }}{%- endif %}{%- endfor %}"
       "{%- if add_generation_prompt %}{{ 'Assistant:' }}{%- endif %}"},
      // An effort, which the prompt shows.
      {"effort",
       "{%- if reasoning_effort is defined %}<effort {{ reasoning_effort }}>{% endif %}"
       "{%- for m in messages %}<{{ m.role }}>{{ m.content }}<end>{%- endfor %}"
       "{%- if add_generation_prompt %}<assistant>{%- endif %}"},
  };
  return styles;
}

inline templates::ChatRenderer style_renderer(const std::string& style) {
  return {text::Tokenizer::characters(all_letters()), templates::ChatTemplate::parse(chat_styles().at(style), style)};
}

// A model with the template, which can hold 4096 tokens.
inline std::unique_ptr<ServedModel> style_model(const std::string& style) {
  auto out = std::make_unique<ServedModel>("m", text::Tokenizer::characters(all_letters()), 98);
  out->longest = 4096;
  out->chat.emplace(style_renderer(style));
  out->calls = learn_call_form(*out->chat);
  return out;
}

inline std::string prompt_text(const GenerationRequest& request, const ServedModel& model) {
  return model.tokenizer.decode(request.prompts.at(0), false);
}

}  // namespace lumen::model::serve
