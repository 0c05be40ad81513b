#include <algorithm>

#include <fmt/format.h>

#include <amalgam/fabric/transport.hpp>

#include "fabric/registry/plugin_folders.hpp"
#include "fabric/transports/loop/loop.hpp"
#include "fabric/transports/shm/shm.hpp"
#include "fabric/transports/tcp/tcp.hpp"

namespace amalgam {

port_options::~port_options() = default;

transport_registry::transport_registry() = default;
transport_registry::transport_registry(transport_registry&&) noexcept = default;
transport_registry& transport_registry::operator=(transport_registry&&) noexcept = default;
transport_registry::~transport_registry() = default;

transport_registry transport_registry::native() {
    transport_registry all;
    all.add(detail::make_loop_transport());
    all.add(detail::make_shm_transport());
    all.add(detail::make_tcp_transport());
    return all;
}

transport_registry transport_registry::installed() {
    transport_registry all = native();
    all.plugins_ = std::make_unique<detail::plugin_folders>();
    return all;
}

void transport_registry::add(std::unique_ptr<transport> one) {
    if (one == nullptr)
        throw error(errc::invalid, "transport_registry::add() was given a null transport");
    std::erase_if(all_, [&](const auto& old) { return old->name() == one->name(); });
    all_.push_back(std::move(one));
}

const transport* transport_registry::find(std::string_view name) const noexcept {
    for (const auto& one : all_)
        if (one->name() == name) return one.get();
    if (plugins_ == nullptr) return nullptr;
    const auto loaded = plugins_->load(name);
    return loaded ? *loaded : nullptr;
}

std::vector<transport_info> transport_registry::describe() const {
    std::vector<transport_info> infos;
    for (const auto& one : all_)
        infos.push_back(one->describe());
    if (plugins_ == nullptr) return infos;
    for (const std::string& name : plugins_->names()) {
        if (std::any_of(all_.begin(), all_.end(), [&](auto& one) { return one->name() == name; }))
            continue;
        const auto loaded = plugins_->load(name);
        transport_info broken;
        broken.name = name;
        broken.why_not = loaded.sentence();
        infos.push_back(loaded ? (*loaded)->describe() : std::move(broken));
    }
    return infos;
}

result<std::unique_ptr<port>> transport_registry::open(std::string_view where,
                                                       const port_options& options) const {
    result<uri> parsed = parse_uri(where);
    if (!parsed) return parsed.why();
    if (options.silence_limit.count() <= 0) {
        return {errc::invalid, fmt::format("port_options::silence_limit is {} ms, expected a "
                                           "positive duration; example: 5000 ms",
                                           options.silence_limit.count())};
    }
    if (options.frame_limit.count() < 0) {
        return {errc::invalid,
                fmt::format("port_options::frame_limit is {} ms, expected a positive duration, or "
                            "0 for no limit; example: 60000 ms",
                            options.frame_limit.count())};
    }
    if (options.max_strangers == 0) {
        return {errc::invalid,
                "port_options::max_strangers is 0, expected at least 1, as no peer could connect "
                "otherwise; example: 1024"};
    }
    port_options within = options;
    within.silence_limit = std::min(options.silence_limit, port_options::longest_limit);
    within.frame_limit = std::min(options.frame_limit, port_options::longest_limit);
    const auto native = std::find_if(
        all_.begin(), all_.end(), [&](const auto& one) { return one->name() == parsed->scheme; });
    if (native != all_.end()) return (*native)->open(*parsed, within);

    const std::string example =
        all_.empty() ? "tcp://127.0.0.1:0" : all_.front()->describe().example;
    if (plugins_ != nullptr) {
        const auto loaded = plugins_->load(parsed->scheme);
        if (loaded) return (*loaded)->open(*parsed, within);
        if (loaded.code() == errc::no_memory) return loaded.why();
        if (loaded.code() != errc::not_found)
            return {errc::unsupported,
                    fmt::format("uri \"{}\": the transport \"{}\" cannot be loaded: {} example: {}",
                                where, parsed->scheme, loaded.sentence(), example)};
    }
    std::vector<std::string> names;
    for (const auto& one : all_)
        names.emplace_back(one->name());
    if (plugins_ != nullptr) {
        for (std::string& name : plugins_->names())
            names.push_back(std::move(name));
    }
    return {
        errc::not_found,
        fmt::format("uri \"{}\": there is no transport \"{}\"; expected one of: {}; example: {}",
                    where, parsed->scheme,
                    names.empty() ? "(none)" : fmt::format("{}", fmt::join(names, ", ")), example)};
}

}  // namespace amalgam
