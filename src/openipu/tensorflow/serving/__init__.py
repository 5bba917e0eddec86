"""Models for serving: functions with frozen weights as SavedModels that stock TensorFlow loads."""
