#include "fabric/registry/plugin_folders.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <set>
#include <system_error>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <amalgam/core/detail/absolute_path.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/fabric/plugin.hpp>

#include "fabric/memory/kept_signals.hpp"
#include "fabric/registry/older_port.hpp"
#include "fabric/registry/plugin_abi.hpp"

namespace amalgam::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view before_name = "amalgam-transport-";
constexpr std::string_view after_name = ".so";

/// How an object of that version of the interface must have been built.
std::string_view abi_of_version(std::uint32_t version) {
    // What later versions add must not move what is older.
    static_assert(sizeof(capabilities) == 48 && sizeof(port) == sizeof(void*));
    static_assert(offsetof(port_options, trust) == 40);
    static constexpr plugin_abi_text version_2 = describe_plugin_abi(2);
    static constexpr plugin_abi_text version_3 = describe_plugin_abi(3);
    return version == 2 ? version_2.text : version == 3 ? version_3.text : plugin_abi.text;
}

/// The version that an object built so is of: ours, unless it is exactly an older one.
std::uint32_t version_of(std::string_view abi) {
    for (std::uint32_t older = oldest_plugin_interface_version; older < plugin_interface_version;
         ++older)
        if (abi == abi_of_version(older)) return older;
    return plugin_interface_version;
}

/// A plug-in's transport, wrapped so that its library leaves the program's signal handlers alone,
/// and so that ports of an older interface are as today's.
class foreign_transport final : public transport {
public:
    foreign_transport(std::unique_ptr<transport> inner, std::uint32_t version)
        : inner_(std::move(inner)), version_(version) {}
    std::string_view name() const noexcept override { return inner_->name(); }
    transport_info describe() const override {
        const kept_signals kept;
        return inner_->describe();
    }
    result<std::unique_ptr<port>> open(const uri& where,
                                       const port_options& options) const override {
        const kept_signals kept;
        auto opened = inner_->open(where, options);
        if (!opened || version_ == plugin_interface_version) return opened;
        return make_older_port(std::move(*opened), version_);
    }

private:
    const std::unique_ptr<transport> inner_;
    const std::uint32_t version_;
};

/// Loads one shared object. It stays loaded even if refused, because its code may have run.
result<std::unique_ptr<transport>> load_file(const std::string& file, std::string_view name) {
    const auto otherwise = [&](std::string_view abi) -> failure {
        return {{errc::mismatch},
                fmt::format("{} is not ABI-compatible with this program: {}: build both with the "
                            "same Amalgam, compiler and options.",
                            file, plugin_abi_differences(abi, plugin_abi.text))};
    };
    if (const auto abi = plugin_abi_of(file); abi && *abi != abi_of_version(version_of(*abi)))
        return otherwise(*abi);
    const kept_signals kept;
    void* const handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return {errc::unsupported, fmt::format("{}.", ::dlerror())};
    using entry = const transport_plugin* (*)();
    const auto ask = reinterpret_cast<entry>(::dlsym(handle, "amalgam_transport_plugin"));
    if (ask == nullptr)
        return {errc::mismatch,
                fmt::format(
                    "{} is not an Amalgam transport: it does not export amalgam_transport_plugin; "
                    "see AMALGAM_TRANSPORT_PLUGIN in amalgam/fabric/plugin.hpp.",
                    file)};
    const transport_plugin* plugin = ask();
    const std::uint32_t version = plugin->interface_version;
    if (version < oldest_plugin_interface_version || version > plugin_interface_version)
        return {
            errc::mismatch,
            fmt::format("{} was built for version {} of the plug-in interface, this program "
                        "for versions {} to {}: build both with the same Amalgam.",
                        file, version, oldest_plugin_interface_version, plugin_interface_version)};
    if (plugin->abi != abi_of_version(version)) return otherwise(plugin->abi);
    try {
        std::unique_ptr<transport> made(plugin->make());
        if (made != nullptr && made->name() == name)
            return {std::make_unique<foreign_transport>(std::move(made), version)};
        return {
            errc::mismatch,
            fmt::format("{} provides a transport named \"{}\", which does not match its file name.",
                        file, made == nullptr ? "" : made->name())};
    } catch (const std::bad_alloc&) {
        throw;  // Not remembered: it may be loaded later.
    } catch (const std::exception& why) {
        return {errc::unsupported, fmt::format("{} failed to initialize: {}", file, why.what())};
    }
}

}  // namespace

namespace {

/// The path of the file that `address` is mapped from, as the kernel knows it now. The loader's may
/// be relative to what was the current folder then. Empty: unknown.
std::string mapped_file(const void* address) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    std::ifstream mappings("/proc/self/maps");
    for (std::string line; std::getline(mappings, line);) {
        std::uintptr_t first = 0, end = 0;
        int path = 0;  // Behind permissions, offset, device and inode.
        if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %*s %n", &first, &end,
                        &path) == 2 &&
            at >= first && at < end)
            return line.substr(static_cast<std::size_t>(path));
    }
    return {};
}

}  // namespace

std::string plugin_folder_beside(const void* code) {
    Dl_info found{};
    link_map* object = nullptr;
    if (::dladdr1(code, &found, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) == 0 ||
        object->l_name == nullptr || *object->l_name == '\0')
        return {};
    const fs::path named = object->l_name;
    std::error_code ignored;
    const fs::path library =
        named.is_absolute() ? fs::canonical(named, ignored) : fs::path(mapped_file(code));
    if (!library.is_absolute()) return {};
    return library.parent_path() / "amalgam";
}

plugin_folders::plugin_folders() {
    const char* const path = std::getenv("AMALGAM_PLUGIN_PATH");
    std::string_view rest(path == nullptr ? "" : path);
    while (!rest.empty()) {
        const std::string_view one = rest.substr(0, rest.find(':'));
        if (!one.empty()) {
            std::string folder(one);
            auto whole = absolute_path(folder);
            folders_.push_back(std::move(whole ? *whole : folder));
        }
        rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    }
}

const std::vector<std::string>& plugin_folders::folders() const {
    if (complete_) return folders_;
    std::vector<std::string> all = folders_;
    std::error_code ignored;
    const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
    if (!program.empty())
        all.push_back(program.parent_path().parent_path() / AMALGAM_PLUGIN_SUBFOLDER);
    if (std::string beside = plugin_folder_beside(reinterpret_cast<void*>(&plugin_folder_beside));
        !beside.empty())
        all.push_back(std::move(beside));
    all.emplace_back(AMALGAM_PLUGIN_FOLDER);
    folders_ = std::move(all);
    complete_ = true;
    return folders_;
}

std::vector<std::string> plugin_folders::names() const {
    const std::lock_guard lock(mutex_);
    std::set<std::string> names;
    for (const std::string& folder : folders()) {
        std::error_code ignored;
        for (const auto& entry : fs::directory_iterator(folder, ignored)) {
            std::string name = entry.path().filename();
            if (name.size() <= before_name.size() + after_name.size() ||
                !name.starts_with(before_name) || !name.ends_with(after_name))
                continue;
            name.resize(name.size() - after_name.size());
            names.insert(name.substr(before_name.size()));
        }
    }
    return {names.begin(), names.end()};
}

std::string plugin_folders::file_of(std::string_view name) const {
    for (const std::string& folder : folders()) {
        std::string file = fmt::format("{}/{}{}{}", folder, before_name, name, after_name);
        std::error_code ignored;
        if (fs::exists(file, ignored)) return file;
    }
    return {};
}

result<const transport*> plugin_folders::load(std::string_view name) noexcept try {
    const std::lock_guard lock(mutex_);
    auto known = loaded_.find(name);
    if (known == loaded_.end()) {
        const std::string file = file_of(name);
        if (file.empty()) return {errc::not_found, fmt::format("there is no plug-in \"{}\"", name)};
        auto fresh = load_file(file, name);
        if (!fresh) log(log_level::info, "fabric", fresh.sentence());
        known = loaded_.emplace(std::string(name), std::move(fresh)).first;
    }
    if (!known->second) return known->second.why();
    return static_cast<const transport*>(known->second->get());
} catch (const std::bad_alloc&) {
    return {errc::no_memory, ""};
}

}  // namespace amalgam::detail
