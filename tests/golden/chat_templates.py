"""Writes chat_templates.json: chats as transformers writes them, by templates in the forms of ten families.

    python-with-transformers tests/golden/chat_templates.py

needs transformers 4.57.1, jinja2 and tokenizers. The templates are written after what the families' documentation says
of their formats; among them they use what templates of models use of Jinja: namespaces, loops with controls, macros,
filters, slices, tests, the current date, JSON, exceptions, and blocks that mark what an assistant has said.
"""

import json
from pathlib import Path

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}

LLAMA2 = """\
{% if messages[0]['role'] == 'system' %}
    {% set system = '<<SYS>>\\n' + messages[0]['content'] | trim + '\\n<</SYS>>\\n\\n' %}
    {% set rest = messages[1:] %}
{% else %}
    {% set system = '' %}{% set rest = messages %}
{% endif %}
{% for message in rest %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('user and assistant must take turns') }}
    {% endif %}
    {% set said = system + message['content'] if loop.first else message['content'] %}
    {% if message['role'] == 'user' %}
        {{- bos_token ~ '[INST] ' ~ said | trim ~ ' [/INST]' }}
    {% else %}
        {{- ' ' ~ said | trim ~ ' ' ~ eos_token }}
    {% endif %}
{% endfor %}"""

LLAMA3 = """\
{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = '26 Jul 2024' %}{% endif %}
{%- if messages[0].role == 'system' %}
{%- set system_message = messages[0]['content']|trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system_message = '' %}{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if tools is not none %}{{- 'Environment: ipython\\n' }}{% endif %}
{{- 'Today Date: ' + date_string + '\\n\\n' }}
{%- if tools is not none %}
{%- for t in tools %}{{- t | tojson(indent=4) }}{{- '\\n\\n' }}{%- endfor %}
{%- endif %}
{{- system_message + '<|eot_id|>' }}
{%- for message in messages %}
{%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- elif 'tool_calls' in message %}
{%- if not message.tool_calls|length == 1 %}{{- raise_exception('one call at a time') }}{%- endif %}
{%- set call = message.tool_calls[0].function %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}
{{- call.arguments | tojson }}{{- '}<|eot_id|>' }}
{%- else %}
{{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
{%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}{%- endif %}
{{- '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""

CHATML = """\
{% for message in messages %}
{% if loop.first and message.role != 'system' %}
{{ '<|im_start|>system\\nYou are a helpful assistant<|im_end|>\\n' }}{% endif %}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

QWEN3 = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- '<tools>' }}
    {%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and not (message.content.startswith('<tool_response>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content or '' %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is defined and message.reasoning_content is not none %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.index0 > ns.last and (loop.last or thought) %}
            {{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {%- set function = call.function or call %}
            {{- '\\n<tool_call>\\n{"name": "' ~ function.name ~ '", "arguments": ' }}
            {{- function.arguments if function.arguments is string else function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""

MISTRAL = """\
{%- set loop_messages = messages[1:] if messages[0].role == "system" else messages %}
{%- set turns = loop_messages | selectattr("role", "equalto", "user") | list %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message.role == "user" %}
        {%- if tools is not none and message == turns[-1] %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}
                    {%- else %}{{- '"' + key + '": ' + val|tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and messages[0].role == "system" %}
            {{- "[INST] " + messages[0].content + "\\n\\n" + message.content + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message.content + "[/INST]" }}
        {%- endif %}
    {%- elif message.role == "assistant" and message.content %}
        {{- " " + message.content|trim + eos_token }}
    {%- elif message.role not in ["tool", "assistant"] %}
        {{- raise_exception("Only user, assistant and tool messages are known, not " ~ message.role) }}
    {%- endif %}
{%- endfor %}"""

GEMMA = """\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}\
{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}\
{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}
{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"""

PHI3 = """\
{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}\
{{'<|system|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'user' %}\
{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'assistant' %}\
{{'<|assistant|>\\n' + message['content'] + '<|end|>\\n'}}{% endif %}{% endfor %}\
{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"""

ZEPHYR = """\
{% for message in messages %}
{% if message['role'] in ('user', 'system', 'assistant') %}
<|{{ message['role'] }}|>
{{ message['content'] + eos_token }}
{% else %}
{% continue %}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""

SMOLLM3 = """\
{%- set mode = reasoning_mode | default('/think' if enable_thinking | default(true) else '/no_think') -%}
{%- set first = messages[0] -%}
{%- macro system(text) -%}
<|im_start|>system
## Metadata

Today Date: {{ strftime_now('%Y') | length }} digits of a year
Reasoning Mode: {{ mode }}

{{ text | default('You are a helpful AI assistant.', true) }}<|im_end|>
{% endmacro -%}
{{ system(first.content if first.role == 'system' else none) }}
{%- for message in messages if message.role != 'system' -%}
    {%- set content = message.content if message.content is string else "" -%}
    {%- if message.role == "user" -%}
        {{ "<|im_start|>" + message.role + "\\n"  + content + "<|im_end|>\\n" }}
    {%- elif message.role == "assistant" -%}
        {% generation %}
        {{ "<|im_start|>assistant\\n" + content.lstrip("\\n") + "<|im_end|>\\n" }}
        {% endgeneration %}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ "<|im_start|>assistant\\n" }}{%- endif -%}"""

DEEPSEEK = """\
{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}\
{% set ns = namespace(system='') %}\
{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system = message['content'] %}\
{%- endif %}{%- endfor %}{{bos_token}}{{ns.system}}\
{%- for message in messages %}{%- if message['role'] == 'user' %}{{'<\uff5cUser\uff5c>' + message['content']}}{%- endif %}\
{%- if message['role'] == 'assistant' and message['content'] is not none %}{% set content = message['content'] %}\
{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}\
{{'<\uff5cAssistant\uff5c>' + content + '<\uff5cend▁of▁sentence\uff5c>'}}{%- endif %}{%- endfor -%}\
{% if add_generation_prompt %}{{'<\uff5cAssistant\uff5c><think>\\n'}}{% endif %}"""

GRANITE = """\
{%- if messages[0]['role'] == 'system' %}
{%- set system_message = messages[0]['content'] %}{%- set loop_messages = messages[1:] %}
{%- else %}
{%- set system_message = "You are a helpful AI assistant." %}{%- set loop_messages = messages %}
{%- endif %}
{{- '<|start_of_role|>system<|end_of_role|>' + system_message + '<|end_of_text|>\\n' }}
{%- if documents %}
{{- '<|start_of_role|>documents<|end_of_role|>' }}
{%- for document in documents %}
{{- 'Document ' + loop.index0 | string + '\\n' + document['title'] + '\\n' + document['text'] }}
{%- if not loop.last %}{{- '\\n\\n' }}{%- endif %}
{%- endfor %}
{{- '<|end_of_text|>\\n' }}
{%- endif %}
{%- for message in loop_messages %}
{{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + message['content'] + '<|end_of_text|>\\n' }}
{%- if loop.last and add_generation_prompt %}{{- '<|start_of_role|>assistant<|end_of_role|>' }}{%- endif %}
{%- endfor %}"""

TEMPLATES = {
    "llama 2": LLAMA2,
    "llama 3": LLAMA3,
    "qwen 2": CHATML,
    "qwen 3": QWEN3,
    "mistral": MISTRAL,
    "gemma": GEMMA,
    "phi 3": PHI3,
    "zephyr": ZEPHYR,
    "smollm 3": SMOLLM3,
    "deepseek": DEEPSEEK,
    "granite": GRANITE,
}

USER = {"role": "user", "content": "  Was heißt <b>\"Schloß\"</b> & 'château'?\n"}
ANSWER = {"role": "assistant", "content": "<think>\nhm\n</think>\n\n城, замок 🏰 "}
SYSTEM = {"role": "system", "content": "Be brief."}
AGAIN = {"role": "user", "content": "And in {{ Finnish }}?"}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"type": "function", "function": {"name": "look_up", "arguments": {"word": "Schloß", "n": 2}}}
    ],
}
RESULT = {"role": "tool", "content": "castle"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Looks a <word> up.",
            "parameters": {
                "type": "object",
                "properties": {"word": {"type": "string"}},
                "required": ["word"],
            },
        },
    }
]
DOCUMENTS = [{"title": "A", "text": "an ä"}, {"title": "B", "text": "b"}]

CHATS = [
    {"messages": [USER]},
    {"messages": [USER], "answer": False},
    {"messages": [SYSTEM, USER, ANSWER, AGAIN]},
    {"messages": [USER, ANSWER, AGAIN], "values": {"enable_thinking": False, "date_string": "1 Jan 2025"}},
    {"messages": [USER, ANSWER]},
    {"messages": [USER, USER]},
    {"messages": [SYSTEM, USER], "tools": TOOLS, "documents": DOCUMENTS},
    {"messages": [SYSTEM, USER, CALL, RESULT], "tools": TOOLS},
]


def written(template: str, chat: dict) -> dict:
    """Returns what transformers writes, or that it refuses."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **SPECIAL)
    try:
        text = tokenizer.apply_chat_template(
            chat["messages"],
            chat_template=template,
            tokenize=False,
            add_generation_prompt=chat.get("answer", True),
            tools=chat.get("tools"),
            documents=chat.get("documents"),
            **chat.get("values", {}),
        )
    except Exception as error:  # noqa: BLE001 - it is what is written down
        return {"refused": str(error)}
    return {"text": text}


def main() -> None:
    found = {name: [written(template, chat) for chat in CHATS] for name, template in TEMPLATES.items()}
    held = {"special": SPECIAL, "templates": TEMPLATES, "chats": CHATS, "written": found}
    path = Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(held, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
