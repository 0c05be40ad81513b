#include <cstdint>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "call/shown.hpp"
#include "why/chains.hpp"

namespace amalgam::tool {
namespace {

using json = nlohmann::ordered_json;

const char* name_of(peer_answer what) {
    switch (what) {
        case peer_answer::told:
            return "told";
        case peer_answer::silent:
            return "silent";
        case peer_answer::refused:
            return "refused";
        case peer_answer::gone:
            return "gone";
        default:
            return "not asked";
    }
}

/// Text: many readers of JSON have numbers of 53 bits only. Null: none.
json id_of(std::uint64_t id) {
    return id == 0 ? json() : json(fmt::format("{:016x}", id));
}

json json_of(const open_call& call) {
    return {{"id", id_of(call.id)},         {"procedure", call.procedure},
            {"provider", call.provider},    {"peer", call.peer},
            {"open_ns", call.open.count()}, {"unsent", call.unsent},
            {"unit", id_of(call.unit)},     {"answer", name_of(call.answer)},
            {"engine", id_of(call.engine)}, {"handler", id_of(call.handler)},
            {"listens_at", call.listens_at}};
}

json json_of(const open_handler& handler) {
    return {{"id", id_of(handler.id)},      {"procedure", handler.procedure},
            {"provider", handler.provider}, {"caller", handler.caller},
            {"one_way", handler.one_way},   {"unit", id_of(handler.unit)}};
}

json json_of(const waiting_unit& unit) {
    return {{"id", id_of(unit.id)},        {"thread", unit.thread},
            {"name", unit.name},           {"state", name(unit.state)},
            {"waits_for", unit.waits_for}, {"waited_ns", unit.waited.count()},
            {"stream", unit.stream},       {"call", id_of(unit.call)},
            {"unit", id_of(unit.unit)},    {"mutex", id_of(unit.mutex)},
            {"readers", unit.readers}};
}

template <typename Items>
json json_of_all(const Items& items) {
    json all = json::array();
    for (const auto& each : items)
        all.push_back(json_of(each));
    return all;
}

json json_of_engine(const asked_engine& engine) {
    const wait_report& told = engine.told;
    return {{"address", engine.address},
            {"engine", id_of(told.engine)},
            {"name", told.name},
            {"process", told.process},
            {"host", told.host},
            {"calls", json_of_all(told.calls)},
            {"handlers", json_of_all(told.handlers)},
            {"units", json_of_all(told.units)},
            {"left_out", told.left_out}};
}

}  // namespace

std::string json_of(const all_waits& of, const std::vector<wait_chain>& chains) {
    json unasked = json::array();
    for (const auto& [address, why] : of.unasked)
        unasked.push_back({{"address", address}, {"why", why}});
    json all = json::array();
    for (const wait_chain& each : chains) {
        json steps = json::array();
        for (const wait_step& at : each.steps) {
            const wait_report& told = of.engines[at.engine].told;
            const bool is_call = at.what == wait_step::kind::call;
            const bool is_handler = at.what == wait_step::kind::handler;
            steps.push_back({{"engine", id_of(told.engine)},
                             {"kind", is_call      ? "call"
                                      : is_handler ? "handler"
                                                   : "unit"},
                             {"id", id_of(id_of_step(of, at))}});
        }
        json one{{"steps", std::move(steps)}, {"deadlock", each.cycle.has_value()}};
        if (each.cycle) {
            one["cycle_from"] = *each.cycle;
            one["sentence"] = deadlock_of(of, each);
        } else {
            one["end"] = each.end;
        }
        all.push_back(std::move(one));
    }
    json engines = json::array();
    for (const asked_engine& each : of.engines)
        engines.push_back(json_of_engine(each));
    const json whole{{"engines", std::move(engines)},
                     {"not_asked", std::move(unasked)},
                     {"chains", std::move(all)}};
    // Names are any bytes.
    return shown_json(whole.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace amalgam::tool
