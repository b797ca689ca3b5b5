"""The stages of a study: what each still wants to launch, given what has been measured."""
