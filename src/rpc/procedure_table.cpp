#include "rpc/procedure_table.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>

#include "rpc/wire.hpp"

namespace amalgam::detail {

void procedure_table::add(std::unique_ptr<served_procedure> fresh) {
    if (fresh->name.empty() || fresh->name.size() > max_name_bytes) {
        throw error(errc::invalid,
                    fmt::format("a procedure's name has 1 to {} bytes, not {}; example: \"sum\"",
                                max_name_bytes, fresh->name.size()));
    }
    if (fresh->signature.size() > max_signature_bytes) {
        throw error(errc::invalid,
                    fmt::format("the signature of \"{}\" has {} bytes as text, more than {}: give "
                                "its types short names by amalgam_type_name",
                                fresh->name, fresh->signature.size(), max_signature_bytes));
    }
    if (const served_procedure* other = find(fresh->name)) {
        throw error(errc::invalid,
                    fmt::format("\"{}\" is defined already, as {}: undefine() it first, or choose "
                                "another name",
                                other->name, other->signature));
    }
    if (const served_procedure* other = find(fresh->id)) {
        throw error(errc::invalid, fmt::format("\"{}\" and \"{}\" have the same id by chance: "
                                               "choose another name for one of them",
                                               fresh->name, other->name));
    }
    all_.push_back(std::move(fresh));
    rebuild();
}

bool procedure_table::remove(std::string_view name) {
    served_procedure* const known = find(name);
    if (known == nullptr) return false;
    known->defined = false;
    collect();
    rebuild();
    return true;
}

served_procedure* procedure_table::find(std::uint64_t id) const noexcept {
    if (table_.empty()) return nullptr;
    const std::size_t mask = table_.size() - 1;
    for (std::size_t at = id & mask; table_[at].what != nullptr; at = (at + 1) & mask) {
        if (table_[at].id == id) return table_[at].what;
    }
    return nullptr;
}

served_procedure* procedure_table::find(std::string_view name) const noexcept {
    const auto at = std::find_if(all_.begin(), all_.end(), [name](const auto& each) {
        return each->defined && each->name == name;
    });
    return at == all_.end() ? nullptr : at->get();
}

void procedure_table::release(served_procedure& used) noexcept {
    --used.running;
    if (!used.defined && used.running == 0) collect();
}

void procedure_table::rebuild() {
    std::vector<entry> fresh(std::bit_ceil(2 * all_.size() + 2));
    const std::size_t mask = fresh.size() - 1;
    for (const auto& each : all_) {
        if (!each->defined) continue;
        std::size_t at = each->id & mask;
        while (fresh[at].what != nullptr)
            at = (at + 1) & mask;
        fresh[at] = {each->id, each.get()};
    }
    table_ = std::move(fresh);
}

void procedure_table::collect() noexcept {
    std::erase_if(all_, [](const auto& each) { return !each->defined && each->running == 0; });
}

}  // namespace amalgam::detail
