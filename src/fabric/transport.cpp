#include <algorithm>

#include <fmt/format.h>

#include <amalgam/fabric/transport.hpp>

#include "fabric/transports/loop/loop.hpp"
#include "fabric/transports/shm/shm.hpp"
#include "fabric/transports/tcp/tcp.hpp"

namespace amalgam {

transport_registry transport_registry::native() {
    transport_registry all;
    all.add(detail::make_loop_transport());
    all.add(detail::make_shm_transport());
    all.add(detail::make_tcp_transport());
    return all;
}

void transport_registry::add(std::unique_ptr<transport> one) {
    std::erase_if(all_, [&](const auto& old) { return old->name() == one->name(); });
    all_.push_back(std::move(one));
}

const transport* transport_registry::find(std::string_view name) const noexcept {
    for (const auto& one : all_)
        if (one->name() == name) return one.get();
    return nullptr;
}

std::vector<transport_info> transport_registry::describe() const {
    std::vector<transport_info> infos;
    for (const auto& one : all_)
        infos.push_back(one->describe());
    return infos;
}

result<std::unique_ptr<port>> transport_registry::open(std::string_view where,
                                                       const port_options& options) const {
    result<uri> parsed = parse_uri(where);
    if (!parsed) return parsed.why();
    const transport* chosen = find(parsed->scheme);
    if (chosen != nullptr) return chosen->open(*parsed, options);

    std::string names;
    for (const auto& one : all_) {
        if (!names.empty()) names += ", ";
        names += one->name();
    }
    return {
        errc::not_found,
        fmt::format("uri \"{}\": there is no transport \"{}\"; expected one of: {}; example: {}",
                    where, parsed->scheme, names.empty() ? "(none)" : names,
                    all_.empty() ? "tcp://127.0.0.1:0" : all_.front()->describe().example)};
}

}  // namespace amalgam
