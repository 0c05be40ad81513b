# Manual pages and completions, which the tool makes from its own definitions.
set(manual ${PROJECT_BINARY_DIR}/manual)
add_custom_command(
  OUTPUT ${manual}/done
  COMMAND ${PROJECT_SOURCE_DIR}/scripts/make_manual $<TARGET_FILE:amalgam_tool> ${manual}
  COMMAND ${CMAKE_COMMAND} -E touch ${manual}/done
  DEPENDS amalgam_tool ${PROJECT_SOURCE_DIR}/scripts/make_manual
  VERBATIM)
add_custom_target(amalgam_manual ALL DEPENDS ${manual}/done)
install(DIRECTORY ${manual}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT tools)
install(FILES ${manual}/amalgam.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME amalgam
        COMPONENT tools)
install(FILES ${manual}/amalgam.zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions RENAME _amalgam
        COMPONENT tools)
install(FILES ${manual}/amalgam.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT tools)
