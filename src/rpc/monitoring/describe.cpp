#include "rpc/monitoring/describe.hpp"

#include <algorithm>
#include <utility>

#include <amalgam/rpc/engine.hpp>

#include "rpc/core/core.hpp"
#include "rpc/limits.hpp"

namespace amalgam {

namespace detail {

namespace {

constexpr std::string_view procedures_name = "amalgam.procedures";
constexpr std::string_view health_name = "amalgam.health";
using page = std::vector<procedure_description>;

/// At most `most` of them from number `first` on, in the order of definition.
page page_of(const procedure_table& table, std::size_t first, std::size_t most) {
    page found;
    std::size_t number = 0;
    table.for_each([&](const served_procedure& each) {
        if (each.library || number++ < first || found.size() == most) return;
        found.push_back({each.name, each.signature, each.options.provider, each.about});
    });
    return found;
}

}  // namespace

void define_descriptions(engine& here) {
    engine_core& core = here.core();
    here.define(library_name{procedures_name},
                [&core](std::uint32_t first) {
                    if (!core.may_be_described()) {
                        throw error(errc::denied,
                                    "this engine does not say which procedures it has; to allow "
                                    "it, set engine_options::reflection there");
                    }
                    return page_of(core.server().procedures(), first,
                                   limits::max_described_at_once);
                },
                {.run = handler::inline_});
    here.define(library_name{health_name},
                // Without this call.
                [&core] { return core.health().now(core.server().running() - 1); },
                {.run = handler::inline_});
}

}  // namespace detail

std::vector<procedure_description> describe(engine& here) {
    std::vector<procedure_description> all;
    here.core().on_stream([&] {
        all = detail::page_of(here.core().server().procedures(), 0, detail::limits::max_described);
    });
    return all;
}

std::vector<procedure_description> describe(engine& here, const peer& there) {
    const auto ask = here.procedure<detail::page(std::uint32_t)>(detail::procedures_name).on(there);
    std::vector<procedure_description> all;
    try {
        while (all.size() < detail::limits::max_described) {
            detail::page next = ask(static_cast<std::uint32_t>(all.size()));
            if (next.empty()) break;
            std::move(next.begin(), next.end(), std::back_inserter(all));
        }
    } catch (const error& why) {
        if (why.handler_code() != errc::denied) throw;
        throw error(errc::denied, why.what());
    }
    return all;
}

void set_health(engine& here, bool serving, std::string_view sentence) {
    here.core().health().set(serving, sentence);
}

engine_health health_of(engine& here) {
    engine_health now;
    here.core().on_stream([&] { now = here.core().health().now(here.core().server().running()); });
    return now;
}

engine_health health_of(engine& here, const peer& there) {
    return here.procedure<engine_health()>(detail::health_name).on(there)();
}

}  // namespace amalgam
