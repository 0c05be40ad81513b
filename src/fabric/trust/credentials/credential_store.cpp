#include "fabric/trust/credentials/credential_store.hpp"

#include <utility>

#include <fmt/format.h>

#include <amalgam/core/log.hpp>

#include "fabric/limits.hpp"
#include "fabric/trust/keys/new_file.hpp"

namespace amalgam::detail {

reread_files::stamps credential_store::stamps() const {
    reread_files::stamps all;
    for (const std::string* path : {&paths_.certificate, &paths_.key, &paths_.authority,
                                    &paths_.revoked, &paths_.shared_keys})
        all.push_back(path->empty() ? file_stamp{} : file_stamp::of(*path));
    return all;
}

/// The paths, without a list that may be absent and is. A link to nothing is none that is absent:
/// what it leads to may not be mounted yet.
credential_parts credential_store::paths_of_today() const {
    credential_parts paths = paths_;
    if (optional_list_ && !is_there(paths.revoked)) paths.revoked.clear();
    return paths;
}

result<void> credential_store::read_again() {
    files_.begin(stamps());
    const credential_parts paths = paths_of_today();
    auto loaded = loaded_credentials::from_files(paths, in_force_.get());
    if (!loaded) return loaded.why();
    if (in_force_ != nullptr)
        if (const auto good = (*loaded)->check_follows(*in_force_); !good) return good;
    if (!paths.revoked.empty()) optional_list_ = false;
    in_force_ = std::move(*loaded);
    files_.were_read();
    return {};
}

credential_store::opened credential_store::of_files(credential_parts paths, bool optional_list) {
    std::unique_ptr<credential_store> made(new credential_store);
    made->paths_ = std::move(paths);
    made->optional_list_ = optional_list;
    made->looked_ = steady::now();
    if (const auto read = made->read_again(); !read) return read.why();
    return made;
}

credential_store::opened credential_store::of_text(const credential_parts& pem) {
    auto loaded = loaded_credentials::from_text(pem);
    if (!loaded) return loaded.why();
    std::unique_ptr<credential_store> made(new credential_store);
    made->in_force_ = std::move(*loaded);
    made->from_text_ = true;
    return made;
}

std::shared_ptr<const loaded_credentials> credential_store::current(steady::time_point now) {
    const std::lock_guard hold(lock_);
    if (from_text_ || now - looked_ < limits::credentials_interval) return in_force_;
    looked_ = now;
    const reread_files::stamps files = stamps();
    if (!files_.must_be_read(files)) return in_force_;
    const bool has_changed = files_.have_changed(files);
    if (const auto read = read_again(); read)
        log(log_level::info, "trust", "credentials read again",
            {{"as", to_text(in_force_->self())}});
    else if (has_changed)
        log(log_level::warn, "trust", "credentials have changed and cannot be used; the old stay",
            {{"why", read.sentence()}});
    return in_force_;
}

std::shared_ptr<const loaded_credentials> credential_store::in_force() const {
    const std::lock_guard hold(lock_);
    return in_force_;
}

result<void> credential_store::reload() {
    const std::lock_guard hold(lock_);
    if (from_text_) return {};
    looked_ = steady::now();
    return read_again();
}

}  // namespace amalgam::detail
