#include "rpc/call/remote_procedures.hpp"

#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/rpc/engine.hpp>

#include "rpc/limits.hpp"
#include "rpc/wire/wire.hpp"

namespace amalgam::detail {

const remote_procedure& remote_procedures::intern(std::string_view name, std::string signature) {
    if (name.empty() || name.size() > limits::max_name_bytes) {
        throw error(
            errc::invalid,
            fmt::format("the procedure name has {} bytes, expected 1 to {}; example: \"sum\"",
                        name.size(), limits::max_name_bytes));
    }
    if (signature.size() > limits::max_signature_bytes) {
        throw error(
            errc::invalid,
            fmt::format("the signature of \"{}\" is {} bytes long as text, expected at "
                        "most {}: give its types short names with amalgam_type_name",
                        printable_name(name), signature.size(), limits::max_signature_bytes));
    }
    const std::uint64_t id = procedure_id(name, signature);
    const std::lock_guard one(lock_);
    const auto at = by_id_.find(id);
    if (at != by_id_.end()) {
        if (at->second->name == name && at->second->signature == signature) return *at->second;
        throw error(errc::invalid,
                    fmt::format("\"{}\" and \"{}\" hash to the same id: rename one of them",
                                printable_name(name), printable_name(at->second->name)));
    }
    counted_procedure& fresh = all_.emplace_back();
    fresh.id = id;
    fresh.index = static_cast<std::uint32_t>(all_.size() - 1);
    fresh.name = name;
    fresh.library = is_library_procedure(name);
    fresh.wire_text = names_text(name, signature);
    fresh.signature = std::move(signature);
    by_id_.emplace(id, &fresh);
    return fresh;
}

const counted_procedure& remote_procedures::intern_for(std::string_view reader,
                                                       std::string_view name,
                                                       std::string signature) {
    const remote_procedure& plain = intern(name, std::move(signature));
    const std::lock_guard one(lock_);
    const auto at = by_reader_.find(reader);
    if (at != by_reader_.end()) return *at->second;
    auto fresh = std::make_unique<counted_procedure>();
    static_cast<remote_procedure&>(*fresh) = plain;
    fresh->read_by = reader;
    return *by_reader_.emplace(reader, std::move(fresh)).first->second;
}

const remote_procedure* remote_procedures::find(std::uint64_t id) {
    const std::lock_guard one(lock_);
    const auto at = by_id_.find(id);
    return at == by_id_.end() ? nullptr : at->second;
}

std::string remote_procedures::name_of(std::uint32_t index) {
    const std::lock_guard hold(lock_);
    return index < all_.size() ? all_[index].name : std::string();
}

}  // namespace amalgam::detail
