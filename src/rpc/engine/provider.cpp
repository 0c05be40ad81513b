#include <algorithm>
#include <new>

#include <fmt/format.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/rpc/extension/inside.hpp>
#include <amalgam/rpc/provider.hpp>

#include "rpc/core/core.hpp"
#include "rpc/limits.hpp"

namespace amalgam {

namespace detail {

namespace {
// Its provider id is the one asked for, so that one id has one identity.
constexpr library_name identity_name{"amalgam.identity"};
}  // namespace

provider_base::provider_base(engine& where, std::string_view identity, procedure_options how)
    : where_(where), pool_(how.in_pool), how_(how) {
    if (identity.empty() || identity.size() > limits::max_name_bytes) {
        throw error(errc::invalid,
                    fmt::format("a provider's identity has {} bytes, expected 1 to {}, and its "
                                "object must not be null; example: \"shelf\"",
                                identity.size(), limits::max_name_bytes));
    }
    if (how.streams != 0) {
        throw error(
            errc::invalid,
            "a provider's procedures share their pool, so procedure_options::streams is not "
            "possible: use engine::add_pool() and procedure_options::in_pool");
    }
    how_.in_pool = {};
    try {
        where.define(identity_name, [text = std::string(identity)] { return text; },
                     {.run = handler::inline_, .provider = how.provider});
    } catch (const error& why) {
        if (why.code() != errc::invalid) throw;
        throw error(errc::invalid,
                    fmt::format("provider {} cannot be \"{}\": this engine has a provider of that "
                                "id already; choose another id",
                                how.provider, printable_name(identity)));
    }
}

provider_base::~provider_base() {
    for (const defined_name& each : names_) {
        if (each.number == 0) continue;  // Somebody else undefined it at once.
        const served_name mine{each.name, id(), each.number};
        end_serving(where_.core(), {&mine, 1});
    }
    // Last: until then the id is not free for another.
    const served_name identity{identity_name.text, id()};
    end_serving(where_.core(), {&identity, 1});
}

bool provider_base::undefine(std::string_view name) {
    const auto known = std::find_if(names_.begin(), names_.end(),
                                    [name](const auto& each) { return each.name == name; });
    if (known == names_.end()) return false;
    const bool was = undefine(*known);
    names_.erase(known);
    return was;
}

/// False: somebody else undefined it before, and may have defined another since.
bool provider_base::undefine(const defined_name& which) {
    engine_core& core = where_.core();
    bool was = false;
    try {
        core.on_stream([&] {
            procedure_table& all = core.server().procedures();
            const served_procedure* const now = all.find(which.name, id());
            was = now != nullptr && now->number == which.number && all.remove(which.name, id());
        });
    } catch (const error& why) {
        if (why.code() != errc::closed) throw;
        return false;  // A stopped engine serves nothing.
    }
    core.streams().reap();
    return was;
}

procedure_options provider_base::options(std::string_view about) const {
    procedure_options how = how_;
    how.in_pool = pool_;
    how.about = about;
    return how;
}

void provider_base::add_name(std::string_view name) {
    engine_core& core = where_.core();
    try {
        std::erase_if(names_, [name](const auto& each) { return each.name == name; });
        defined_name& added = names_.emplace_back(defined_name{std::string(name), 0});
        core.on_stream([&] {
            if (const auto* const now = core.server().procedures().find(name, id()))
                added.number = now->number;
        });
    } catch (const std::bad_alloc&) {
        where_.undefine(name, id());
        throw;
    }
}

}  // namespace detail

std::string identity_of(engine& here, const peer& there, std::uint16_t id) {
    try {
        return here.procedure<std::string()>(detail::identity_name.text).on(there, id)();
    } catch (const error& why) {
        if (why.code() != errc::not_found) throw;
        return {};
    }
}

}  // namespace amalgam
